#include "workloads/protein_diffusion/fasta_conversion.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/work_progress.h"
#include "workloads/formats/fasta.h"
#include "workloads/formats/packed_records.h"
#include "workloads/protein_diffusion/data.h"

namespace oarlock::protein_diffusion {

namespace {

constexpr int64_t kProgressEvery = 1'000'000;  // records

class Converter {
 public:
  Converter(const SequenceFilter& filter, const HeldOut& held_out, PackedRecordsWriter train, PackedRecordsWriter eval)
      : filter_(filter), held_out_(held_out), train_(std::move(train)), eval_(std::move(eval)) {}

  bool full() const { return filter_.max_sequences > 0 && counts_.train + counts_.eval == filter_.max_sequences; }
  const ConversionCounts& counts() const { return counts_; }

  Result<void> add(std::string_view sequence) {
    ++counts_.records;
    const std::optional<int64_t> unknown = tokenize(sequence);
    if (!unknown) return {};
    counts_.unknown_residues += *unknown;
    const bool eval = held_out();
    ++(eval ? counts_.eval : counts_.train);
    return (eval ? eval_ : train_).add(tokens_);
  }

  Result<void> finish() {
    return train_.finish().and_then([&] { return eval_.finish(); });
  }

 private:
  // Fills tokens_ and returns the number of unknown residues. Counts a record that does not pass, and returns nothing.
  std::optional<int64_t> tokenize(std::string_view sequence) {
    const auto length = static_cast<int64_t>(sequence.size());
    if (length == 0) return skip(counts_.empty);
    if (length < filter_.min_length) return skip(counts_.too_short);
    if (length > filter_.max_length) return skip(counts_.too_long);
    tokens_.clear();
    int64_t unknown = 0;
    for (const char letter : sequence) {
      const std::optional<int64_t> token = encode(letter);
      if (!token) ++unknown;
      if (token || filter_.unknown_residues == UnknownResidues::kToken) {
        tokens_.push_back(static_cast<uint8_t>(token.value_or(kUnknownToken)));
      }
    }
    if (static_cast<double>(unknown) > filter_.max_unknown * static_cast<double>(length) || tokens_.empty()) {
      return skip(counts_.too_many_unknown);
    }
    return unknown;
  }

  static std::nullopt_t skip(int64_t& count) {
    ++count;
    return std::nullopt;
  }

  bool held_out() const {
    const uint64_t hash = XXH3_64bits_withSeed(tokens_.data(), tokens_.size(), static_cast<uint64_t>(held_out_.seed));
    return std::ldexp(static_cast<double>(hash), -64) < held_out_.fraction;
  }

  SequenceFilter filter_;
  HeldOut held_out_;
  PackedRecordsWriter train_;
  PackedRecordsWriter eval_;
  ConversionCounts counts_;
  std::vector<uint8_t> tokens_;
};

Result<void> convert_all(const std::filesystem::path& fasta, Converter& converter, const Logger& log) {
  ASSIGN_OR_RETURN(FastaReader reader, FastaReader::open(fasta));
  std::error_code ignored;
  const auto size = static_cast<double>(std::filesystem::file_size(fasta, ignored));
  while (!converter.full()) {
    ASSIGN_OR_RETURN(std::optional<FastaRecord> record, reader.next());
    if (!record.has_value()) break;
    RETURN_IF_ERROR(converter.add(record->sequence));
    report_work(LongWork::kPrepareData, reader.bytes_read(), static_cast<int64_t>(size));
    if (converter.counts().records % kProgressEvery == 0) {
      log.info("converting sequences",
               {{"file", fasta.string()},
                {"records", converter.counts().records},
                {"percent", std::floor(100 * static_cast<double>(reader.bytes_read()) / size)}});
    }
  }
  return converter.finish();
}

std::string describe_counts(const ConversionCounts& counts, const SequenceFilter& filter) {
  return fmt::format(
      "of {} records {} are empty, {} shorter than {} (data.min_length), {} longer than {} "
      "(data.max_length), and {} have too many unknown residues (data.max_unknown)",
      counts.records, counts.empty, counts.too_short, filter.min_length, counts.too_long, filter.max_length,
      counts.too_many_unknown);
}

}  // namespace

Result<ConversionCounts> convert_fasta(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                       const HeldOut& held_out, const std::filesystem::path& directory,
                                       const Logger& log) {
  ASSIGN_OR_RETURN(PackedRecordsWriter train, PackedRecordsWriter::create(directory / "train"));
  ASSIGN_OR_RETURN(PackedRecordsWriter eval, PackedRecordsWriter::create(directory / "eval"));
  Converter converter(filter, held_out, std::move(train), std::move(eval));
  RETURN_IF_ERROR(convert_all(fasta, converter, log));
  const ConversionCounts& counts = converter.counts();
  if (counts.train + counts.eval == 0) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: no sequence passes: {}", fasta.string(), describe_counts(counts, filter)));
  }
  return counts;
}

namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;  // of the files that convert_fasta() writes

void report(const fs::path& fasta, const fs::path& cache, const ConversionCounts& counts, const Logger& log) {
  log.info("sequences converted", {{"file", fasta.string()},
                                   {"to", cache.string()},
                                   {"records", counts.records},
                                   {"train", counts.train},
                                   {"eval", counts.eval},
                                   {"empty", counts.empty},
                                   {"too_short", counts.too_short},
                                   {"too_long", counts.too_long},
                                   {"too_many_unknown", counts.too_many_unknown},
                                   {"unknown_residues", counts.unknown_residues}});
}

}  // namespace

Result<CacheEntry> open_conversion(const fs::path& fasta, const SequenceFilter& filter, const HeldOut& held_out,
                                   const fs::path& cache, const Logger& log) {
  const CacheKey key{.directory = cache_directory(fasta, cache),
                     .sources = {fasta},
                     .kind = "sequences",
                     .version = kVersion,
                     .options = fmt::format("{} {} {} {} {} {} {}", filter.min_length, filter.max_length,
                                            filter.max_sequences, static_cast<int>(filter.unknown_residues),
                                            filter.max_unknown, held_out.fraction, held_out.seed)};
  RETURN_IF_ERROR(open_regular_file(fasta));
  return open_cache_entry(key, log, [&](const fs::path& part) {
    return convert_fasta(fasta, filter, held_out, part, log).map([&](const ConversionCounts& counts) {
      report(fasta, key.directory, counts, log);
    });
  });
}

}  // namespace oarlock::protein_diffusion
