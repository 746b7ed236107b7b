// The one place where gRPC channels are made (tests/base/tidy_test.cc sees to it).
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace tailor::protocol {

/// A channel to the coordinator at `target` (HOST:PORT), without encryption, lazily connected. The
/// address is one that the user gave, or loopback, so it is reached directly: gRPC would otherwise
/// send every connection, those to 127.0.0.1 too, through the HTTP proxy that the environment names
/// (grpc_proxy, https_proxy, http_proxy). `arguments` come first. Threads: any.
std::shared_ptr<grpc::Channel> open_channel(const std::string& target,
                                            grpc::ChannelArguments arguments = {});

/// "http_proxy=...": the proxy that the environment names and that is not used, without its user
/// and password; "" when none is set.
std::string unused_proxy();

/// Our codes are gRPC's.
Status from_grpc(const grpc::Status& status);

}  // namespace tailor::protocol
