#include "trainer/tasks/protein_diffusion/protein_data.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/tasks/protein_diffusion/fasta_cache.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

// With the remedy where the file is not there.
Result<Conversion> locate(const std::string& path, std::string_view key, const ProteinDataConfig& config,
                          const SequenceFilter& filter, const HeldOut& held_out) {
  Result<Conversion> located = locate_conversion(path, filter, held_out, config.cache);
  if (!located && located.error().code == ExitCode::kNoInput) {
    located.error().message += fmt::format(
        " (data.{}); `apt-get install mmseqs2-examples` puts 20,000 proteins into "
        "/usr/share/doc/mmseqs2/example-data",
        key);
  }
  return located;
}

Result<Conversion> train_conversion(const ProteinDataConfig& config) {
  HeldOut held_out = config.held_out;
  if (!config.eval_path.empty()) held_out = {};
  return locate(config.path, "path", config, config.filter, held_out);
}

Result<Conversion> eval_conversion(const ProteinDataConfig& config) {
  SequenceFilter filter = config.filter;
  filter.max_sequences = 0;
  return locate(config.eval_path, "eval_path", config, filter, {});
}

Result<Sequences> open_side(const fs::path& stem, int64_t limit, const std::string& remedy) {
  Result<PackedBytes> packed = PackedBytes::open(stem);
  if (!packed) return tl::make_unexpected(packed.error());
  if (packed->size() == 0) return fail(ExitCode::kDataErr, remedy);
  return Sequences(std::move(*packed), limit);
}

}  // namespace

void describe(ProteinDataConfig& config, Fields& fields) {
  fields.field("path", config.path, "FASTA file, plain or gzip");
  fields.field("eval_path", config.eval_path, "the same, to evaluate on; empty: a part of path is held out");
  fields.field("cache", config.cache, "folder of the converted files, one byte per residue; empty: beside the files");
  fields.field("min_length", config.filter.min_length, at_least(1), "residues; shorter records are skipped");
  fields.field("max_length", config.filter.max_length, from_to(1, PackedBytes::kMaxLength), "longer ones are, too");
  fields.field("max_sequences", config.filter.max_sequences, at_least(0),
               "of path: the first so many that pass; 0: all");
  fields.choice<UnknownResidues>("unknown_residues", config.filter.unknown_residues,
                                 {{"drop", UnknownResidues::kDrop}, {"unk", UnknownResidues::kToken}},
                                 "X, B, Z, U, O, J, * and -: left out, or the token <unk>");
  fields.field("max_unknown", config.filter.max_unknown, from_to(0, 1),
               "part of a record that may be unknown residues; a record with more is skipped");
  fields.field("eval_fraction", config.held_out.fraction, from_below(0, 1),
               "part of the sequences of path that is held out to evaluate on");
  fields.field("split_seed", config.held_out.seed, at_least(0), "decides which are held out");
  fields.field("eval_sequences", config.eval_sequences, at_least(0), "the first so many to evaluate on; 0: all");
  if (config.path.empty()) fields.problem("path", "must not be empty");
  if (config.filter.min_length > config.filter.max_length) {
    fields.problem("min_length",
                   fmt::format("{} is above max_length, {}", config.filter.min_length, config.filter.max_length));
  }
  fields.only_where("eval_fraction", config.eval_path.empty(), "nothing of path is held out: eval_path is set");
  fields.only_where("split_seed", config.eval_path.empty(), "nothing of path is held out: eval_path is set");
}

Result<void> prepare_proteins(const ProteinDataConfig& config, const Logger& log) {
  Result<Conversion> train = train_conversion(config);
  if (!train) return tl::make_unexpected(train.error());
  if (const Result<void> converted = convert_once(*train, log); !converted || config.eval_path.empty())
    return converted;
  Result<Conversion> eval = eval_conversion(config);
  if (!eval) return tl::make_unexpected(eval.error());
  return convert_once(*eval, log);
}

Result<ProteinSplits> open_proteins(const ProteinDataConfig& config) {
  Result<Conversion> converted = train_conversion(config);
  if (!converted) return tl::make_unexpected(converted.error());
  fs::path eval_stem = converted->folder / "eval";
  if (!config.eval_path.empty()) {
    Result<Conversion> eval = eval_conversion(config);
    if (!eval) return tl::make_unexpected(eval.error());
    eval_stem = eval->folder / "train";  // nothing of it is held out
  }
  Result<Sequences> train = open_side(converted->folder / "train", 0,
                                      fmt::format("{}: every sequence is held out; lower data.eval_fraction ({})",
                                                  config.path, config.held_out.fraction));
  if (!train) return tl::make_unexpected(train.error());
  Result<Sequences> eval = open_side(eval_stem, config.eval_sequences,
                                     fmt::format("{}: no sequence is held out; raise data.eval_fraction ({}) or set "
                                                 "data.eval_path",
                                                 config.path, config.held_out.fraction));
  if (!eval) return tl::make_unexpected(eval.error());
  return ProteinSplits{.train = std::move(*train), .eval = std::move(*eval)};
}

}  // namespace oarlock
