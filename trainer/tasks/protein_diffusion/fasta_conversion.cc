#include "trainer/tasks/protein_diffusion/fasta_conversion.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/data/fasta.h"
#include "trainer/data/packed_bytes.h"
#include "trainer/tasks/protein_diffusion/residues.h"

namespace oarlock {
namespace {

constexpr int64_t kProgressEvery = 1'000'000;  // records

class Converter {
 public:
  Converter(const SequenceFilter& filter, const HeldOut& held_out, PackedBytesWriter train, PackedBytesWriter eval)
      : filter_(filter), held_out_(held_out), train_(std::move(train)), eval_(std::move(eval)) {}

  bool full() const { return filter_.max_sequences > 0 && counts_.train + counts_.eval == filter_.max_sequences; }
  const ConversionCounts& counts() const { return counts_; }

  void take(std::string_view sequence) {
    ++counts_.records;
    if (const std::optional<int64_t> unknown = tokenize(sequence)) {
      counts_.unknown_residues += *unknown;
      const bool eval = held_out();
      (eval ? eval_ : train_).add(tokens_);
      ++(eval ? counts_.eval : counts_.train);
    }
  }

  Result<void> finish() {
    return train_.finish().and_then([&] { return eval_.finish(); });
  }

 private:
  // Into tokens_; gives the number of unknown residues. Nothing for a record that does not pass, which is counted.
  std::optional<int64_t> tokenize(std::string_view sequence) {
    const auto length = static_cast<int64_t>(sequence.size());
    if (length == 0) return skip(counts_.empty);
    if (length < filter_.min_length) return skip(counts_.too_short);
    if (length > filter_.max_length) return skip(counts_.too_long);
    tokens_.clear();
    int64_t unknown = 0;
    for (const char letter : sequence) {
      const std::optional<int64_t> token = token_of(letter);
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
  PackedBytesWriter train_;
  PackedBytesWriter eval_;
  ConversionCounts counts_;
  std::vector<uint8_t> tokens_;
};

Result<void> convert_all(const std::filesystem::path& fasta, Converter& converter, const Logger& log) {
  Result<FastaReader> reader = FastaReader::open(fasta);
  if (!reader) return tl::make_unexpected(reader.error());
  std::error_code ignored;
  const auto size = static_cast<double>(std::filesystem::file_size(fasta, ignored));
  while (!converter.full()) {
    Result<std::optional<FastaRecord>> record = reader->next();
    if (!record) return tl::make_unexpected(record.error());
    if (!record->has_value()) break;
    converter.take((*record)->sequence);
    if (converter.counts().records % kProgressEvery == 0) {
      log.info("converting sequences",
               {{"file", fasta.string()},
                {"records", converter.counts().records},
                {"percent", std::floor(100 * static_cast<double>(reader->bytes_read()) / size)}});
    }
  }
  return converter.finish();
}

std::string explain(const ConversionCounts& counts, const SequenceFilter& filter) {
  return fmt::format(
      "of {} records {} are empty, {} shorter than {} (data.min_length), {} longer than {} "
      "(data.max_length), and {} have too many unknown residues (data.max_unknown)",
      counts.records, counts.empty, counts.too_short, filter.min_length, counts.too_long, filter.max_length,
      counts.too_many_unknown);
}

}  // namespace

Result<ConversionCounts> convert_fasta(const std::filesystem::path& fasta, const SequenceFilter& filter,
                                       const HeldOut& held_out, const std::filesystem::path& folder,
                                       const Logger& log) {
  Result<PackedBytesWriter> train = PackedBytesWriter::create(folder / "train");
  if (!train) return tl::make_unexpected(train.error());
  Result<PackedBytesWriter> eval = PackedBytesWriter::create(folder / "eval");
  if (!eval) return tl::make_unexpected(eval.error());
  Converter converter(filter, held_out, std::move(*train), std::move(*eval));
  if (const Result<void> converted = convert_all(fasta, converter, log); !converted)
    return tl::make_unexpected(converted.error());
  const ConversionCounts& counts = converter.counts();
  if (counts.train + counts.eval == 0) {
    return fail(ExitCode::kDataErr, fmt::format("{}: no sequence passes: {}", fasta.string(), explain(counts, filter)));
  }
  return counts;
}

}  // namespace oarlock
