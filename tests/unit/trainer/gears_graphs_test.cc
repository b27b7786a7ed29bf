// The graphs of GEARS, compared with those of cell-gears 0.1.2 (tests/data/gears_graphs.*).
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/safetensors.h"
#include "tests/support/gears_goldens.h"
#include "tests/support/temporary_directory.h"
#include "workloads/gears/conversion.h"
#include "workloads/gears/gene_graphs.h"
#include "workloads/gears/splits.h"

namespace oarlock::gears {
namespace {

using test::gears_file;
using test::gears_golden;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAreArray;

CellStore store_in(const std::filesystem::path& directory) {
  const Result<void> converted = convert_anndata(gears_file("perturb_processed.h5ad"), directory, Logger::silent());
  if (!converted) throw std::runtime_error(converted.error().message);
  return CellStore::open(directory).value();
}

// Source and target -> weight.
using EdgeWeights = std::map<std::pair<int64_t, int64_t>, double>;

EdgeWeights weights_of(const GraphEdges& edges) {
  EdgeWeights out;
  for (int64_t i = 0; i < edges.source.numel(); ++i) {
    out[{edges.source[i].item<int64_t>(), edges.target[i].item<int64_t>()}] = edges.weight[i].item<double>();
  }
  return out;
}

void expect_equal(const GraphEdges& edges, const at::Tensor& index, const at::Tensor& weight) {
  const EdgeWeights ours = weights_of(edges);
  const EdgeWeights theirs = weights_of({index[0], index[1], weight});
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [nodes, value] : theirs) {
    ASSERT_TRUE(ours.contains(nodes)) << nodes.first << " -> " << nodes.second;
    EXPECT_NEAR(ours.at(nodes), value, 1e-6) << nodes.first << " -> " << nodes.second;
  }
}

TEST(GearsGraphs, CoexpressionOfTheTrainingCellsIsTheOriginals) {
  const test::TemporaryDirectory directory;
  const CellStore store = store_in(directory.path());
  NameList conditions;
  for (const CellCondition& condition : store.conditions()) conditions.push_back(condition.name);
  const Split split = make_split({.seed = 1}, conditions).value();
  std::vector<int64_t> train;
  for (const std::string& name : split.train) train.push_back(store.index_of(name));
  const auto edges = coexpression_edges(store, train, {.threshold = 0.25, .similar = 5});
  const auto tensors = read_safetensors(gears_file("graphs.safetensors"))->tensors;
  expect_equal(index_edges(edges, store.genes()), tensors.at("G_coexpress"), tensors.at("G_coexpress_weight"));
}

TEST(GearsGraphs, TheOntologysIsTheOriginals) {
  const nlohmann::json dataset = gears_golden("dataset.json");
  const auto terms = dataset["gene2go"].get<GeneTerms>();
  const auto perturbed = dataset["pert_names"].get<std::vector<std::string>>();
  const auto edges = ontology_edges(terms, perturbed, 6);
  const auto tensors = read_safetensors(gears_file("graphs.safetensors"))->tensors;
  expect_equal(index_edges(edges, perturbed), tensors.at("G_go"), tensors.at("G_go_weight"));
}

TEST(GearsGraphs, EdgesAreReadAsTheOriginalWritesThem) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path csv = directory.path() / "go.csv";
  const std::vector<NamedEdge> edges{{"A", "B", 0.1}, {"B", "B", 1}, {"C", "A", 1.0 / 3}};
  ASSERT_TRUE(write_edges(csv, edges));
  EXPECT_EQ(read_edges(csv).value(), edges);
  const std::vector<NamedEdge> quoted{{"HLA-A,B", "say \"x\"", 0.5}, {"\"q\"", "two\nlines", 0.25}, {"", "B", 1}};
  ASSERT_TRUE(write_edges(csv, quoted));
  EXPECT_EQ(read_edges(csv).value(), quoted);
  std::ofstream(csv) << ",target,importance,source\r\n0,B,0.5,A\r\n1,B,1,B\r\n";
  EXPECT_EQ(read_edges(csv).value(), (std::vector<NamedEdge>{{"A", "B", 0.5}, {"B", "B", 1}}));
  std::ofstream(csv) << "\xEF\xBB\xBF\"source\",\"target\",\"importance\"\r\n\"A\",\"B\",0.5\r\nB,\"B\",1\r\n";
  EXPECT_EQ(read_edges(csv).value(), (std::vector<NamedEdge>{{"A", "B", 0.5}, {"B", "B", 1}}));
  std::ofstream(csv) << "source,target,importance\nA,B,1e-400\nB,B,+1\n";  // as R and pandas read them
  EXPECT_EQ(read_edges(csv).value(), (std::vector<NamedEdge>{{"A", "B", 0}, {"B", "B", 1}}));
  const auto message_of = [&](const std::string& text) {
    std::ofstream(csv) << text;
    return read_edges(csv).error().message;
  };
  EXPECT_THAT(message_of("gene1,gene2,score\n"), AllOf(HasSubstr("go.csv:1"), HasSubstr("no column source")));
  EXPECT_THAT(message_of("source,target,importance\nA,B\n"), AllOf(HasSubstr("go.csv:2"), HasSubstr("too few")));
  EXPECT_THAT(message_of("source,target,importance\nA,B,1\nA,B,nan\n"), AllOf(HasSubstr("go.csv:3"), HasSubstr("nan")));
  for (const std::string value : {"inf", "1e300", "-1", ""}) {
    EXPECT_THAT(message_of("source,target,importance\nA,B," + value + "\n"), HasSubstr("go.csv:2")) << value;
  }
  // A line takes no more memory than its text.
  EXPECT_THAT(message_of(std::string(10 << 20, ',') + "\n"),
              AllOf(HasSubstr("go.csv:1"), HasSubstr("no column source")));
}

TEST(GearsGraphs, StrongestEdgesAndNumbers) {
  const std::vector<NamedEdge> edges{{"A", "B", 0.5}, {"C", "B", 0.5}, {"B", "B", 1}, {"A", "A", 1}, {"Z", "A", 0.2}};
  const std::vector<NamedEdge> two = strongest_of_targets(edges, 2);
  EXPECT_EQ(two, (std::vector<NamedEdge>{{"A", "A", 1}, {"Z", "A", 0.2}, {"B", "B", 1}, {"A", "B", 0.5}}));
  EXPECT_THAT(weights_of(index_edges(two, {"A", "B"})),
              ElementsAre(Pair(Pair(0, 0), 1), Pair(Pair(0, 1), 0.5), Pair(Pair(1, 1), 1)));
}

TEST(GearsGraphs, TermsAreReadFromJson) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path json = directory.path() / "gene2go.json";
  std::ofstream(json) << R"({"A": ["GO:1", "GO:2"], "B": ["GO:2"], "C": []})";
  const GeneTerms terms = read_gene2go(json).value();
  EXPECT_EQ(ontology_edges(terms, {"A", "B", "C", "D"}, 20),
            (std::vector<NamedEdge>{{"A", "A", 1}, {"B", "A", 0.5}, {"B", "B", 1}, {"A", "B", 0.5}}));
  std::ofstream(json) << R"({"A": "GO:1"})";
  EXPECT_THAT(read_gene2go(json).error().message, AllOf(HasSubstr("gene2go.json"), HasSubstr("expected JSON")));
  std::ofstream(json) << "{\"A\": [\"GO:1\"]\n\"B\": []}";
  EXPECT_THAT(read_gene2go(json).error().message, AllOf(HasSubstr("line 2, column 3"), HasSubstr("expected JSON")));
  std::ofstream(json) << R"({"A": )" << std::string(1'000'000, '[');
  EXPECT_THAT(read_gene2go(json).error().message, HasSubstr("is nested more deeply than a JSON object of lists"));
}

TEST(GearsGraphs, GenesAreReadFromAList) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path list = directory.path() / "genes.txt";
  std::ofstream(list) << "\xEF\xBB\xBF" << "A\r\n\nB";
  EXPECT_THAT(read_gene_list(list).value(), ElementsAre("A", "B"));
}

}  // namespace
}  // namespace oarlock::gears
