#include "worker/trainer/diagnose_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "geometry/npy.h"
#include "model/data/dataset.h"
#include "model/data/loader.h"
#include "model/data/manifest.h"

namespace tailor::trainer {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kTextBytesMax = 32u << 20;

/// Ids in a row, of which windows are cut.
struct IdStream {
  std::uint64_t count = 0;
  std::function<Status(std::uint64_t position, std::span<std::uint32_t> out)> read;
  std::optional<std::uint32_t> bos;  ///< put before each window
};

IdStream stream_of(std::vector<std::uint32_t> ids) {
  IdStream stream;
  stream.count = ids.size();
  stream.read = [ids = std::move(ids)](std::uint64_t position, std::span<std::uint32_t> out) {
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(position), out.size(), out.begin());
    return Status::ok();
  };
  return stream;
}

Status add_npy(const std::string& path, std::vector<IdStream>& streams) {
  TAILOR_ASSIGN_OR_RETURN(const geometry::NpyArray array, geometry::read_npy(path));
  const auto ids = array.to_integers();
  const std::size_t rank = array.shape.size();
  if (!ids || (rank != 1 && rank != 2) || array.size() == 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: ids are integers of shape (T) or (B, T), at least one", path));
  }
  const std::size_t time = array.shape.back();
  for (std::size_t row = 0; row * time < ids->size(); ++row) {
    std::vector<std::uint32_t> one;
    for (std::size_t t = 0; t < time; ++t) {
      const std::int64_t id = (*ids)[row * time + t];
      if (id < 0 || id > 0xFFFFFFFFll) {
        return Status(Code::kInvalidArgument, fmt::format("{}: {} is no token id", path, id));
      }
      one.push_back(static_cast<std::uint32_t>(id));
    }
    streams.push_back(stream_of(std::move(one)));
  }
  return Status::ok();
}

Status add_shards(const std::string& pattern, const ModelFiles& model,
                  std::vector<IdStream>& streams) {
  TAILOR_ASSIGN_OR_RETURN(data::Dataset opened, data::Dataset::open_glob(pattern, {}));
  const auto dataset = std::make_shared<const data::Dataset>(std::move(opened));
  const bool unknown = dataset->tokenizer_sha256() ==
                       data::unknown_tokenizer_sha256(dataset->vocab_size(), dataset->eos_id());
  if (!model.tokenizer_sha256.empty() && !unknown && !model.tokenizer_is_unknown &&
      dataset->tokenizer_sha256() != model.tokenizer_sha256) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} holds ids of another tokenizer than {} was trained on", pattern,
                              model.weights));
  }
  IdStream stream;
  stream.count = dataset->token_count();
  stream.read = [dataset](std::uint64_t position, std::span<std::uint32_t> out) {
    return dataset->read(position, out);
  };
  streams.push_back(std::move(stream));
  return Status::ok();
}

/// The first kTextBytesMax bytes, without a character that was cut.
Result<std::string> read_text(const std::string& path) {
  std::error_code failure;
  const auto bytes = std::filesystem::file_size(path, failure);
  if (failure) return error(errno_status(failure.value(), "open", path));
  std::ifstream file(path, std::ios::binary);
  std::string text(std::min<std::uintmax_t>(bytes, kTextBytesMax), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    return error(Code::kUnavailable, fmt::format("cannot read {}", path));
  }
  const std::string_view encoding = utf16_or_utf32(std::string_view(text).substr(0, 4096));
  if (!encoding.empty()) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} is {} text, and UTF-8 is read: convert it with iconv -f {} -t "
                             "UTF-8",
                             path, encoding, encoding));
  }
  if (bytes > text.size()) {
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) {
      text.pop_back();
    }
    if (!text.empty()) text.pop_back();
  }
  std::size_t bad_offset = 0;
  if (!is_valid_utf8(text, &bad_offset)) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} is not UTF-8: wrong byte at offset {}", path, bad_offset));
  }
  return std::string(without_byte_order_mark(text));
}

bool ends_with(const std::string& path, std::string_view ending) {
  return std::string_view(path).ends_with(ending);
}

}  // namespace

Result<diagnose::Sequences> choose_sequences(const std::vector<std::string>& files,
                                             const ModelFiles& model, const std::string& tokenizer,
                                             const diagnose::Settings& settings,
                                             ordered_json& about) {
  std::vector<IdStream> streams;
  std::optional<ModelTokenizer> encoder;
  ordered_json names = ordered_json::array();
  for (const std::string& path : files) {
    names.push_back(std::filesystem::path(path).filename().string());
    if (ends_with(path, ".npy")) {
      TAILOR_RETURN_IF_ERROR(add_npy(path, streams));
      continue;
    }
    if (ends_with(path, ".tokens")) {
      TAILOR_RETURN_IF_ERROR(add_shards(path, model, streams));
      continue;
    }
    TAILOR_ASSIGN_OR_RETURN(const std::string text, read_text(path));
    if (!encoder) {
      TAILOR_ASSIGN_OR_RETURN(encoder, tokenizer_of(model, tokenizer));
      about["tokenizer_sha256"] = encoder->sha256;
    }
    std::vector<std::uint32_t> ids;
    encoder->tokenizer->encode(text, &ids);
    IdStream stream = stream_of(std::move(ids));
    if (encoder->tokenizer->adds_bos()) stream.bos = encoder->tokenizer->bos_id();
    streams.push_back(std::move(stream));
  }

  // Windows, numbered through all streams.
  const auto own = [&](const IdStream& stream) {
    return static_cast<std::uint64_t>(settings.length) - (stream.bos ? 1 : 0);
  };
  std::vector<std::uint64_t> ends;
  std::uint64_t windows = 0, tokens = 0;
  for (const IdStream& stream : streams) {
    windows += stream.count / own(stream);
    tokens += stream.count;
    ends.push_back(windows);
  }
  if (windows < 2) {
    return error(Code::kFailedPrecondition,
                 fmt::format("the data has {} tokens: {} whole sequences of {}, and at least 2 are "
                             "needed (some hundred for errors worth having); give more data, or a "
                             "smaller --length",
                             tokens, windows, settings.length));
  }
  const auto probed = std::min<std::uint64_t>(static_cast<std::uint64_t>(settings.probe_sequences),
                                              std::max<std::uint64_t>(1, windows / 2));
  const std::uint64_t wanted =
      std::min<std::uint64_t>(windows, probed + settings.cloud_sequences());
  const data::Permutation order(windows, stable_hash("diagnosed sequences", settings.seed));
  diagnose::Sequences out;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t window = order(i);
    const auto at =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), window) - ends.begin());
    const IdStream& stream = streams[at];
    const std::uint64_t first = window - (at == 0 ? 0 : ends[at - 1]);
    std::vector<std::uint32_t> ids(own(stream));
    TAILOR_RETURN_IF_ERROR(stream.read(first * own(stream), ids));
    if (stream.bos) ids.insert(ids.begin(), *stream.bos);
    for (const std::uint32_t id : ids) {
      if (id < model.form.vocab_size) continue;
      return error(Code::kInvalidArgument,
                   fmt::format("the data holds token {}; the model has tokens 0 to {}", id,
                               model.form.vocab_size - 1));
    }
    std::vector<std::int64_t> sequence(ids.begin(), ids.end());
    if (i < probed) {
      sequence.resize(static_cast<std::size_t>(settings.probe_length));
      out.probes.push_back(std::move(sequence));
    } else {
      out.clouds.push_back(std::move(sequence));
    }
  }
  about["files"] = std::move(names);
  about["tokens"] = tokens;
  about["windows"] = windows;
  about["cloud_sequences"] = out.clouds.size();
  about["probe_sequences"] = out.probes.size();
  return out;
}

}  // namespace tailor::trainer
