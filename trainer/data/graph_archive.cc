#include "trainer/data/graph_archive.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Of = GraphColumn::Of;

constexpr int kFormat = 1;
constexpr size_t kMaxIndexBytes = size_t{1} << 20;
constexpr char kIndex[] = "graphs.json";
constexpr char kDestinations[] = "destinations";  // until finish()

constexpr std::array<std::pair<Of, const char*>, 3> kOwners{
    {{Of::kNodes, "nodes"}, {Of::kEdges, "edges"}, {Of::kGraphs, "graphs"}}};
constexpr std::array<std::pair<at::ScalarType, const char*>, 5> kTypes{{{at::kByte, "uint8"},
                                                                        {at::kInt, "int32"},
                                                                        {at::kLong, "int64"},
                                                                        {at::kFloat, "float32"},
                                                                        {at::kDouble, "float64"}}};

template <typename Table, typename Key>
const char* name_of(const Table& table, Key key) {
  for (const auto& [value, name] : table) {
    if (value == key) return name;
  }
  throw std::invalid_argument("unsupported type of a column of a graph archive");
}

template <typename Table>
auto value_of(const Table& table, const std::string& name) {
  std::optional<typename Table::value_type::first_type> found;
  for (const auto& [value, known] : table) {
    if (name == known) found = value;
  }
  return found;
}

std::string file_of(const GraphColumn& column) {
  return fmt::format("{}.{}", name_of(kOwners, column.of), column.name);
}

size_t row_bytes(const GraphColumn& column) {
  return static_cast<size_t>(c10::multiply_integers(column.row)) * c10::elementSize(column.type);
}

void write(std::ofstream& file, std::span<const std::byte> bytes) {
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void write(std::ofstream& file, int64_t value) { write(file, std::as_bytes(std::span(&value, 1))); }

// Maps a file as a tensor, without a copy. The file is unmapped when the last tensor that shares its memory is
// destroyed.
Result<at::Tensor> map_tensor(const fs::path& path, at::IntArrayRef sizes, at::ScalarType type) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path, MappedFile::Access::kRandom));
  const size_t expected = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (file.bytes().size() != expected)
    return fail(ExitCode::kDataErr,
                fmt::format("{}: expected {} bytes, found {}; remove its directory, which is then created again",
                            path.string(), expected, file.bytes().size()));
  if (expected == 0) return at::empty(sizes, type);
  const auto kept = std::make_shared<MappedFile>(std::move(file));
  // The tensor is only read; at::from_blob does not accept const memory.
  auto* data = const_cast<uint8_t*>(kept->bytes().data());
  return at::from_blob(data, sizes, [kept](void*) {}, at::TensorOptions().dtype(type));
}

struct Index {
  int64_t graphs = 0;
  int64_t nodes = 0;
  int64_t edges = 0;
  std::vector<GraphColumn> columns;
};

// Sizes in bytes cannot overflow below these limits.
constexpr int64_t kMaxRows = int64_t{1} << 40;
constexpr int64_t kMaxRowElements = int64_t{1} << 22;

bool is_count(int64_t count) { return count >= 0 && count <= kMaxRows; }

bool is_row(std::span<const int64_t> sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || size > kMaxRowElements / elements) return false;
    elements *= std::max<int64_t>(size, 1);
  }
  return true;
}

std::optional<Index> parsed(const std::string& text) try {
  const Json json = Json::parse(text);
  if (json.at("format") != kFormat) return std::nullopt;
  Index index{.graphs = json.at("graphs"), .nodes = json.at("nodes"), .edges = json.at("edges"), .columns = {}};
  for (const Json& column : json.at("columns")) {
    const auto of = value_of(kOwners, column.at("of").get<std::string>());
    const auto type = value_of(kTypes, column.at("type").get<std::string>());
    if (!of || !type) return std::nullopt;
    index.columns.push_back({.of = *of, .name = column.at("name"), .type = *type, .row = column.at("row")});
    if (!is_row(index.columns.back().row)) return std::nullopt;
  }
  if (!is_count(index.graphs) || !is_count(index.nodes) || !is_count(index.edges)) return std::nullopt;
  return index;
} catch (const Json::exception&) {
  return std::nullopt;
}

std::vector<int64_t> to_vector(const at::Tensor& values) {
  const auto* data = values.const_data_ptr<int64_t>();
  return {data, data + values.numel()};
}

}  // namespace

Result<GraphArchiveWriter> GraphArchiveWriter::create(const fs::path& directory, std::vector<GraphColumn> columns) {
  GraphArchiveWriter writer(directory, std::move(columns));
  const auto open = [&](std::ofstream& file, const std::string& name) -> Result<void> {
    file.open(directory / name, std::ios::binary);
    if (!file) return fail_errno(errno, fmt::format("{}: cannot be created", (directory / name).string()));
    return {};
  };
  writer.files_.resize(writer.columns_.size());
  for (size_t i = 0; i < writer.files_.size(); ++i) {
    RETURN_IF_ERROR(open(writer.files_[i], file_of(writer.columns_[i])));
  }
  RETURN_IF_ERROR(open(writer.sources_, "edge_index"));
  RETURN_IF_ERROR(open(writer.destinations_, kDestinations));
  RETURN_IF_ERROR(open(writer.node_offsets_, "node_offsets"));
  RETURN_IF_ERROR(open(writer.edge_offsets_, "edge_offsets"));
  write(writer.node_offsets_, 0);
  write(writer.edge_offsets_, 0);
  return writer;
}

Result<void> GraphArchiveWriter::add(const GraphRecord& record) {
  const size_t edges = record.sources.size();
  if (record.destinations.size() != edges || record.columns.size() != columns_.size())
    throw std::invalid_argument("the edges or columns of a graph do not match the archive");
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Of of = columns_[i].of;
    const size_t rows = of == Of::kNodes ? static_cast<size_t>(record.nodes) : of == Of::kEdges ? edges : 1;
    if (record.columns[i].size() != rows * row_bytes(columns_[i]))
      throw std::invalid_argument(fmt::format("column '{}' of a graph does not have {} rows", columns_[i].name, rows));
    write(files_[i], record.columns[i]);
  }
  write(sources_, std::as_bytes(record.sources));
  write(destinations_, std::as_bytes(record.destinations));
  write(node_offsets_, nodes_ += record.nodes);
  write(edge_offsets_, edges_ += static_cast<int64_t>(edges));
  ++graphs_;
  const bool is_good = sources_ && destinations_ && node_offsets_ && edge_offsets_ &&
                       std::ranges::all_of(files_, [](const std::ofstream& file) { return static_cast<bool>(file); });
  return is_good ? Result<void>() : write_error();
}

tl::unexpected<Error> GraphArchiveWriter::write_error() const {
  return fail_errno(errno == 0 ? EIO : errno, fmt::format("{}: cannot be written", directory_.string()));
}

// Appends the destinations to the sources. An operator<< of a stream buffer would not report a failure in the middle.
bool GraphArchiveWriter::append_destinations() {
  std::ifstream from(directory_ / kDestinations, std::ios::binary);
  std::vector<char> block(size_t{1} << 20);
  for (int64_t left = edges_ * static_cast<int64_t>(sizeof(int64_t)); left > 0;) {
    const int64_t size = std::min(left, std::ssize(block));
    if (!from.read(block.data(), size) || !sources_.write(block.data(), size)) return false;
    left -= size;
  }
  return true;
}

Result<void> GraphArchiveWriter::finish() {
  errno = 0;
  destinations_.close();
  if (!destinations_ || !append_destinations()) return write_error();
  std::vector<std::ofstream*> files{&sources_, &node_offsets_, &edge_offsets_};
  std::vector<std::string> names{"edge_index", "node_offsets", "edge_offsets"};
  Json columns = Json::array();
  for (size_t i = 0; i < columns_.size(); ++i) {
    files.push_back(&files_[i]);
    names.push_back(file_of(columns_[i]));
    columns.push_back({{"of", name_of(kOwners, columns_[i].of)},
                       {"name", columns_[i].name},
                       {"type", name_of(kTypes, columns_[i].type)},
                       {"row", columns_[i].row}});
  }
  for (std::ofstream* file : files) {
    file->close();
    if (!*file) return write_error();
  }
  for (const std::string& name : names) {
    RETURN_IF_ERROR(sync_file(directory_ / name));
  }
  std::error_code ignored;
  fs::remove(directory_ / kDestinations, ignored);
  const Json index = {
      {"format", kFormat}, {"graphs", graphs_}, {"nodes", nodes_}, {"edges", edges_}, {"columns", columns}};
  return write_file_atomically(directory_ / kIndex, index.dump() + "\n");
}

Result<GraphArrays> open_graph_archive(const fs::path& directory) {
  ASSIGN_OR_RETURN(const std::string text, read_regular_file(directory / kIndex, kMaxIndexBytes));
  const std::optional<Index> index = parsed(text);
  if (!index) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: the format is not {}; remove its directory, which is then created again",
                            (directory / kIndex).string(), kFormat));
  }
  GraphArrays arrays;
  const auto map = [&](const std::string& name, const std::vector<int64_t>& sizes, at::ScalarType type,
                       at::Tensor& into) {
    return map_tensor(directory / name, sizes, type).map([&](at::Tensor mapped) { into = std::move(mapped); });
  };
  at::Tensor node_offsets;
  at::Tensor edge_offsets;
  RETURN_IF_ERROR(map("edge_index", {2, index->edges}, at::kLong, arrays.edge_index));
  RETURN_IF_ERROR(map("node_offsets", {index->graphs + 1}, at::kLong, node_offsets));
  RETURN_IF_ERROR(map("edge_offsets", {index->graphs + 1}, at::kLong, edge_offsets));
  for (const GraphColumn& column : index->columns) {
    auto& tensors = column.of == Of::kNodes ? arrays.nodes : column.of == Of::kEdges ? arrays.edges : arrays.graphs;
    const int64_t rows = column.of == Of::kNodes   ? index->nodes
                         : column.of == Of::kEdges ? index->edges
                                                   : index->graphs;
    std::vector<int64_t> sizes{rows};
    sizes.insert(sizes.end(), column.row.begin(), column.row.end());
    RETURN_IF_ERROR(map(file_of(column), sizes, column.type, tensors[column.name]));
  }
  arrays.node_offsets = to_vector(node_offsets);
  arrays.edge_offsets = to_vector(edge_offsets);
  return arrays;
}

Result<GraphCollation> open_graphs(const fs::path& directory) {
  ASSIGN_OR_RETURN(GraphArrays arrays, open_graph_archive(directory));
  return GraphCollation::create(std::move(arrays)).map_error([&](Error error) {
    error.message =
        fmt::format("{}: {}; remove the directory, which is then created again", directory.string(), error.message);
    return error;
  });
}

}  // namespace oarlock
