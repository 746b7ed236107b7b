#include "protocol/channel.h"

#include <cstdlib>

namespace tailor::protocol {

std::shared_ptr<grpc::Channel> open_channel(const std::string& target,
                                            grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

std::string unused_proxy() {
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy", "all_proxy", "GRPC_PROXY",
                           "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text = value;
    const std::size_t scheme = text.find("://");
    const std::size_t from = scheme == text.npos ? 0 : scheme + 3;
    const std::size_t at = text.rfind('@');  // of a user and a password, which nobody may see
    if (at != text.npos && at >= from) text.replace(from, at - from, "***");
    return std::string(name) + "=" + text;
  }
  return "";
}

Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return Status::ok();
  return Status(static_cast<Code>(status.error_code()), status.error_message());
}

}  // namespace tailor::protocol
