#include "model/train/artifacts.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/file.h"
#include "geometry/npy.h"
#include "model/pretrained/export.h"
#include "model/pretrained/safetensors.h"

namespace tailor::train {
namespace {

Status make_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  return failure ? errno_status(failure.value(), "create", folder) : Status::ok();
}

}  // namespace

Status export_weights(const net::Decoder& decoder, const shape::Architecture& architecture,
                      std::int64_t sequence_length, const data::ExportedTokenizer& tokenizer,
                      const std::string& folder) {
  TAILOR_RETURN_IF_ERROR(make_folder(folder));
  const at::Tensor weights = decoder.parameters().flat().to(at::kCPU);
  const std::string path = folder + "/model.safetensors";
  const std::string temporary = path + ".partial";
  TAILOR_RETURN_IF_ERROR(status_of(pretrained::write_safetensors(
      temporary, decoder.parameters().describe(weights, ""), {{"format", "pt"}})));
  std::error_code failure;
  std::filesystem::rename(temporary, path, failure);
  if (failure) return errno_status(failure.value(), "rename", temporary);
  TAILOR_RETURN_IF_ERROR(data::write_exported_tokenizer(folder, tokenizer));
  const pretrained::SpecialIds ids{tokenizer.identity.eos_id, tokenizer.identity.bos_id};
  TAILOR_RETURN_IF_ERROR(write_file_atomic(folder + "/generation_config.json",
                                           pretrained::export_generation_config(ids)));
  return write_file_atomic(folder + "/config.json",
                           pretrained::export_config(architecture, sequence_length, ids));
}

Status write_blocks(const Evaluation& evaluation, const std::string& folder) {
  TAILOR_RETURN_IF_ERROR(make_folder(folder));
  std::vector<double> values;
  for (const eval::BlockLoss& block : evaluation.blocks) {
    values.push_back(block.nats);
    values.push_back(static_cast<double>(block.tokens));
  }
  const std::size_t shape[] = {evaluation.blocks.size(), 2};
  return geometry::write_npy(folder + "/validation_blocks.npy", values, shape);
}

}  // namespace tailor::train
