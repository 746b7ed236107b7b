#include "model/data/exported_tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExportedName = "tailor_tokenizer.json";
constexpr std::uint64_t kExportedBytesMax = 1 << 20;
constexpr std::uint64_t kPartBytesMax = 512u << 20;

/// The SentencePiece model that shards name with the hash of its file, if it is at hand.
std::vector<tokenizers::TokenizerPart> find_model_file(
    const std::string& folder, const std::optional<DatasetManifest>& manifest,
    const std::string& sha256) {
  std::vector<std::string> candidates;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".model") candidates.push_back(entry.path().string());
  }
  if (manifest && manifest->tokenizer.name.ends_with(".model")) {
    candidates.push_back(manifest->tokenizer.name);
  }
  for (const std::string& candidate : candidates) {
    Result<std::string> content = read_file(candidate, kPartBytesMax);
    if (content && sha256_hex(*content) == sha256)
      return {{"tokenizer.model", *std::move(content)}};
  }
  return {};
}

}  // namespace

ExportedTokenizer tokenizer_of_dataset(const Dataset& dataset) {
  ExportedTokenizer out;
  out.identity.sha256 = dataset.tokenizer_sha256();
  out.identity.vocab_size = dataset.vocab_size();
  out.identity.eos_id = dataset.eos_id();
  const fs::path parent = fs::path(dataset.shards().front().path()).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const std::optional<DatasetManifest> manifest = manifest_beside(dataset);
  if (manifest) out.identity.bos_id = manifest->tokenizer.bos_id;
  if (out.identity.sha256 == tokenizers::make_byte_tokenizer()->sha256()) {
    out.parts = tokenizers::byte_tokenizer_parts();
  } else if (out.identity.sha256 ==
             unknown_tokenizer_sha256(out.identity.vocab_size, out.identity.eos_id)) {
    out.missing = "the ids were imported without their tokenizer";
  } else if (manifest && !manifest->tokenizer.files.empty()) {
    const Result<std::string> kept = kept_tokenizer(folder, *manifest);
    if (!kept) out.missing = kept.error().message();
    for (const ManifestTokenizerFile& file : manifest->tokenizer.files) {
      if (!kept) break;
      Result<std::string> content =
          read_file((fs::path(folder) / file.file).string(), kPartBytesMax);
      if (!content) {
        out.missing = content.error().message();
        out.parts.clear();
        break;
      }
      out.parts.push_back({file.file, *std::move(content)});
    }
  } else {
    out.parts = find_model_file(folder, manifest, out.identity.sha256);
    if (out.parts.empty()) out.missing = fmt::format("{} does not keep it", folder);
  }
  for (const tokenizers::TokenizerPart& part : out.parts) {
    out.identity.files.push_back({part.file, part.content.size(), sha256_hex(part.content)});
  }
  return out;
}

Status write_exported_tokenizer(const std::string& folder, const ExportedTokenizer& tokenizer) {
  for (const tokenizers::TokenizerPart& part : tokenizer.parts) {
    TAILOR_RETURN_IF_ERROR(
        write_file_atomic((fs::path(folder) / part.file).string(), part.content));
  }
  return write_file_atomic((fs::path(folder) / kExportedName).string(),
                           format_tokenizer(tokenizer.identity));
}

Result<TokenizerIdentity> read_exported_tokenizer(const std::string& folder) {
  const std::string path = (fs::path(folder) / kExportedName).string();
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, kExportedBytesMax));
  return parse_tokenizer(text, path);
}

}  // namespace tailor::data
