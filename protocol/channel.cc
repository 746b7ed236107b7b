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
    if (value != nullptr && *value != '\0') return std::string(name) + "=" + value;
  }
  return "";
}

}  // namespace tailor::protocol
