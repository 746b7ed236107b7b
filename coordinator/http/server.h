// A small HTTP/1.1 server (Boost.Beast): reads requests within limits, hands them to one handler,
// writes the answers. Knows nothing of Tailor's pages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::http {

/// One request, decoded.
struct Request {
  std::string method;  ///< "GET" or "HEAD"; others are refused before the handler
  std::string path;    ///< percent-decoded, without the query: "/api/v1/sweeps"
  /// What stands between the slashes of the path, decoded after it was split: a part may hold "/".
  std::vector<std::string> parts;
  std::map<std::string, std::string> query;  ///< percent-decoded; of a repeated key the last wins
  bool accepts_gzip = false;
  std::string if_none_match;
};

/// One answer. `body` is owned; `fixed` points at bytes that live as long as the process (embedded
/// pages) and is used when `body` is empty.
struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string_view fixed;
  bool gzip = false;  ///< the bytes are gzip already
  std::string etag;   ///< with quotes, "" = none
  std::string cache_control = "no-store";
};

struct Options {
  std::string listen = "127.0.0.1:7071";  ///< HOST:PORT; port 0 = any free one
  /// Further names that a request's Host may have (`HostRule`); "*" allows every one.
  std::vector<std::string> allowed_hosts;
  /// A further one takes the place of the one that has been silent for longest (idle, or half a
  /// request), so that those keep nobody out; when all are being answered it is closed with a 503.
  std::size_t connections_max = 256;
  std::uint32_t header_bytes_max = 16 * 1024;
  std::uint64_t body_bytes_max = 64 * 1024;
  std::int64_t read_ms_max = 15'000;   ///< for a whole request, and for an idle connection
  std::int64_t write_ms_max = 30'000;  ///< for a whole answer
  int threads = 3;
  /// Paths that are answered on the connections' own threads. Requests for others run on
  /// `work_threads` threads of their own, so that however long those take (and however many wait:
  /// up to `work_waiting_max`, further ones get 503), a health page is answered at once. Empty: all
  /// paths are quick.
  std::function<bool(std::string_view path)> quick;
  int work_threads = 3;
  std::size_t work_waiting_max = 256;
};

/// Which Host a request may name. A page of another site can have its name point at this address
/// (DNS rebinding) and would then read everything here as its own; but its requests still carry its
/// name. Allowed are, with any port: localhost and loopback addresses, the address that is listened
/// on, this machine's name, and what `Options::allowed_hosts` adds. Where more than loopback is
/// listened on, so is every numeric address: those are nobody's names.
class HostRule {
 public:
  /// `listen` is the HOST of the address; `machine` the host's name.
  HostRule(std::string_view listen, std::string_view machine,
           const std::vector<std::string>& allowed);
  /// Ok, or kInvalidArgument (not well-formed), kPermissionDenied (not allowed; names the option).
  Status check(std::string_view host) const;

 private:
  bool any_ = false;
  bool numeric_ = false;
  std::vector<std::string> names_;  // lower case, without port and last dot
};

/// Runs on the server's threads, on several at once; may block where the path is not `quick`.
using Handler = std::function<Response(const Request&)>;

class Server {
 public:
  /// Errors: kInvalidArgument (not HOST:PORT), kAlreadyExists (port in use),
  /// kUnavailable (address not ours).
  static Result<std::unique_ptr<Server>> start(Options options, Handler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  /// The port in use.
  int port() const;
  /// Closes every connection and ends the threads. Idempotent.
  void stop();

  struct Impl;  // private: defined in server.cc

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Whether `address` could be listened on now: to refuse before anything else is begun.
/// Errors: as Server::start.
Status check_listen(const std::string& address);
/// Splits "HOST:PORT" ("[::1]:7071" too). Errors: kInvalidArgument.
Result<std::pair<std::string, std::uint16_t>> split_address(std::string_view address);
/// True for a name or address as a request's Host may have it, with or without a port.
bool is_host(std::string_view text);
/// True when HOST is 127.0.0.0/8, ::1 or "localhost".
bool is_loopback(std::string_view host);
/// What every answer says that a page may load and run.
std::string_view content_security_policy();
/// The path and query of a request target. Errors: kInvalidArgument for bad percent-encoding.
Status parse_target(std::string_view target, Request& request);
/// The host that a target in absolute form ("http://host:80/path?x", as through a proxy) names, and
/// `*rest`, what is behind it ("/path?x"); nullopt for every other target.
std::optional<std::string_view> authority_of(std::string_view target, std::string_view* rest);
/// JSON {"error":{"code":...,"message":...}} with the HTTP status that fits.
Response error_response(const Status& status);
Response error_response(int http_status, std::string_view code, std::string_view message);

}  // namespace tailor::http
