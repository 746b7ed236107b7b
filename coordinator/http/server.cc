#include "coordinator/http/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/text.h"
#include "coordinator/engine/work_pool.h"

namespace tailor::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using tcp = asio::ip::tcp;

/// Pages run our own scripts only (the hash is that of the one line of script in index.html), talk
/// to this server only and are framed by nobody. Plotly sets styles inline.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'self'; script-src 'self' 'sha256-NDATBINIMSzlWD054BMX+AqntzYrRXZtdE97Z6JqB0E='; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'none'";

beast::string_view to_beast(std::string_view text) { return {text.data(), text.size()}; }
std::string_view to_std(beast::string_view text) { return {text.data(), text.size()}; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool percent_decode(std::string_view text, bool plus_is_space, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else {
      out.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return true;
}

/// "Example.COM.:80" -> "example.com", "[::1]:80" -> "::1"; nullopt for what is no host with or
/// without port.
std::optional<std::string> host_name(std::string_view host) {
  std::string_view name = host;
  std::string_view port;
  if (host.starts_with('[')) {
    const std::size_t close = host.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    name = host.substr(1, close - 1);
    port = host.substr(close + 1);
  } else if (const std::size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  if (!port.empty() &&
      (port.front() != ':' || port.find_first_not_of("0123456789", 1) != std::string_view::npos)) {
    return std::nullopt;
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  std::string out;
  for (const char c : name) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool allowed = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9') ||
                         small == '-' || small == '_' || small == '.' || small == ':';
    if (!allowed) return std::nullopt;
    out += small;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

std::optional<asio::ip::address> numeric_address(const std::string& host) {
  boost::system::error_code failed;
  const auto address = asio::ip::make_address(host, failed);
  if (failed) return std::nullopt;
  return address;
}

/// True when a list header ("gzip, deflate;q=0.5") names gzip with a weight above 0.
bool names_gzip(std::string_view header) {
  for (const auto& item : bhttp::ext_list(to_beast(header))) {
    if (!beast::iequals(item.first, "gzip") && item.first != "*") continue;
    for (const auto& parameter : item.second) {
      if (beast::iequals(parameter.first, "q") &&
          to_std(parameter.second).find_first_not_of("0.") == std::string_view::npos) {
        return false;
      }
    }
    return true;
  }
  return false;
}

}  // namespace

Result<std::pair<std::string, std::uint16_t>> split_address(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  const auto bad = [&] {
    return error(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is no address; expected HOST:PORT, such as 127.0.0.1:7070", address));
  };
  if (colon == std::string_view::npos || colon == 0) return bad();
  std::string_view host = address.substr(0, colon);
  const std::string_view digits = address.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failed != std::errc() || end != digits.data() + digits.size() || digits.empty()) return bad();
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad();
  }
  return std::pair(std::string(host), port);
}

bool is_host(std::string_view text) { return host_name(text).has_value(); }

std::string_view content_security_policy() { return kContentSecurityPolicy; }

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  boost::system::error_code failed;
  const auto address = asio::ip::make_address(std::string(host), failed);
  return !failed && address.is_loopback();
}

HostRule::HostRule(std::string_view listen, std::string_view machine,
                   const std::vector<std::string>& allowed)
    : numeric_(!is_loopback(listen)) {
  names_ = {"localhost"};
  const auto add = [&](std::string_view name) {
    // An IPv6 address without brackets would read as a name with a port.
    const bool bare = name.find(':') != name.rfind(':') && !name.starts_with('[');
    if (auto known = host_name(bare ? fmt::format("[{}]", name) : std::string(name))) {
      names_.push_back(std::move(*known));
    }
  };
  add(listen);
  add(machine);
  add(machine.substr(0, machine.find('.')));
  for (const std::string& name : allowed) {
    any_ = any_ || name == "*";
    add(name);
  }
}

Status HostRule::check(std::string_view host) const {
  if (any_) return Status::ok();
  const auto name = host_name(host);
  if (!name) return {Code::kInvalidArgument, "the request's Host is no name or address"};
  if (std::find(names_.begin(), names_.end(), *name) != names_.end()) return Status::ok();
  const auto address = numeric_address(*name);
  if (address && (address->is_loopback() || numeric_)) return Status::ok();
  return {
      Code::kPermissionDenied,
      fmt::format(
          "this coordinator is not known as \"{}\": a page of another site could otherwise read it "
          "(DNS rebinding). If the name is meant, start it with --allowed-host {} or "
          "`allowed_hosts` in "
          "its configuration",
          *name, *name)};
}

std::optional<std::string_view> authority_of(std::string_view target, std::string_view* rest) {
  constexpr std::string_view kScheme = "http://";
  if (!beast::iequals(to_beast(target.substr(0, kScheme.size())), to_beast(kScheme))) {
    return std::nullopt;
  }
  target.remove_prefix(kScheme.size());
  const std::size_t end = std::min(target.find_first_of("/?#"), target.size());
  const std::string_view authority = target.substr(0, end);
  *rest = target.substr(end);
  if (!rest->starts_with('/')) *rest = "/";  // of "http://host?x" the query means nothing here
  return authority;
}

Status parse_target(std::string_view target, Request& request) {
  const auto bad = [] {
    return Status(Code::kInvalidArgument, "the address is not well-formed (percent-encoding)");
  };
  if (target.empty() || target.front() != '/') {
    return {Code::kInvalidArgument, "the request's target must begin with /"};
  }
  target = target.substr(0, target.find('#'));
  const std::size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  if (!percent_decode(path, false, request.path)) return bad();
  for (const std::string_view part : split(path.substr(1), '/')) {
    if (!percent_decode(part, false, request.parts.emplace_back())) return bad();
  }
  if (question == std::string_view::npos) return Status::ok();
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const std::size_t ampersand = rest.find('&');
    const std::string_view part = rest.substr(0, ampersand);
    rest = ampersand == std::string_view::npos ? std::string_view() : rest.substr(ampersand + 1);
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    std::string key;
    std::string value;
    if (!percent_decode(part.substr(0, equals), true, key)) return bad();
    if (equals != std::string_view::npos && !percent_decode(part.substr(equals + 1), true, value)) {
      return bad();
    }
    if (!request.query.emplace(key, value).second) {
      return {Code::kInvalidArgument,
              fmt::format("the parameter \"{}\" is given twice", short_text(key))};
    }
  }
  return Status::ok();
}

Response error_response(int http_status, std::string_view code, std::string_view message) {
  Response response;
  response.status = http_status;
  const nlohmann::json body = {{"error", {{"code", code}, {"message", message}}}};
  response.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return response;
}

Response error_response(const Status& status) {
  int http = 500;
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      http = 400;
      break;
    case Code::kNotFound:
      http = 404;
      break;
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
    case Code::kAborted:
      http = 409;
      break;
    case Code::kPermissionDenied:
      http = 403;
      break;
    case Code::kResourceExhausted:
    case Code::kUnavailable:
      http = 503;
      break;
    case Code::kDeadlineExceeded:
      http = 504;
      break;
    case Code::kUnimplemented:
      http = 501;
      break;
    default:
      break;
  }
  return error_response(http, code_name(status.code()), status.message());
}

// ---- connections

namespace {

std::string listen_host(const std::string& listen) {
  const auto parts = split_address(listen);
  return parts ? parts->first : "";
}

std::string machine_name() {
  boost::system::error_code failed;
  std::string name = asio::ip::host_name(failed);
  return failed ? "" : name;
}

}  // namespace

class Connection;

struct Server::Impl {
  Impl(Options o, Handler h)
      : options(std::move(o)),
        handler(std::move(h)),
        hosts(listen_host(options.listen), machine_name(), options.allowed_hosts),
        context(options.threads),
        work(static_cast<std::size_t>(options.work_threads), options.work_waiting_max),
        acceptor(context),
        pause(context) {}

  Options options;
  Handler handler;
  const HostRule hosts;
  std::atomic<std::size_t> connections{0};  // outlives the connections that the context owns
  std::mutex silent_mutex;                  // guards: silent, and the connections' place in it
  std::list<Connection*> silent;            // a request is awaited from; the longest first
  asio::io_context context;
  engine::WorkPool work;  // requests that are not quick
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  int port = 0;
  bool cannot_accept = false;  // of the one accept in flight
  std::vector<std::jthread> threads;
  std::once_flag stopped;

  void accept();
  /// Closes the connection that has been silent for longest. False when none is.
  bool make_room();
};

/// One connection: read a request, answer it, again. Every step has a deadline, so a slow client
/// costs a file descriptor for a while and nothing else.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Server::Impl& server)
      : stream_(std::move(socket)), server_(server) {
    ++server_.connections;
  }
  ~Connection() {
    leave_silent();
    --server_.connections;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void read() {
    {
      const std::scoped_lock lock(server_.silent_mutex);
      silent_at_ = server_.silent.insert(server_.silent.end(), this);
    }
    parser_.emplace();
    parser_->header_limit(server_.options.header_bytes_max);
    parser_->body_limit(server_.options.body_bytes_max);
    stream_.expires_after(std::chrono::milliseconds(server_.options.read_ms_max));
    bhttp::async_read(stream_, buffer_, *parser_,
                      [self = shared_from_this()](beast::error_code failed, std::size_t) {
                        self->on_read(failed);
                      });
  }

  /// Another takes its place, unless a whole request comes first. False when it is being destroyed.
  /// REQUIRES: silent_mutex held, and it is in `silent`.
  bool give_way() {
    const auto self = weak_from_this().lock();
    if (self == nullptr) return false;
    server_.silent.erase(*silent_at_);
    silent_at_.reset();
    given_up_ = true;
    asio::post(stream_.get_executor(), [self] {
      {
        const std::scoped_lock lock(self->server_.silent_mutex);
        if (!self->given_up_) return;
      }
      self->stream_.close();
    });
    return true;
  }

 private:
  void leave_silent() {
    const std::scoped_lock lock(server_.silent_mutex);
    if (silent_at_) server_.silent.erase(*silent_at_);
    silent_at_.reset();
    given_up_ = false;
  }

  void on_read(beast::error_code failed) {
    leave_silent();
    if (!failed) return answer();
    keep_alive_ = false;
    version_ = 11;
    head_ = false;
    if (failed == bhttp::error::header_limit || failed == bhttp::error::buffer_overflow) {
      return write(error_response(431, "invalid_argument", "the request's header is too large"));
    }
    if (failed == bhttp::error::body_limit) {
      return write(error_response(413, "invalid_argument", "the request's body is too large"));
    }
    if (failed == beast::error::timeout || failed == bhttp::error::end_of_stream ||
        failed == bhttp::error::partial_message ||
        failed.category() != make_error_code(bhttp::error::bad_method).category()) {
      return close();
    }
    write(error_response(400, "invalid_argument", "this is no HTTP request: " + failed.message()));
  }

  void answer() {
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    version_ = message.version();
    head_ = message.method() == bhttp::verb::head;
    // HTTP/1.0 knows no Host; no browser speaks it.
    const auto hosts = message.count(bhttp::field::host);
    if (hosts > 1 || (hosts == 0 && version_ >= 11)) {
      keep_alive_ = false;
      return write(error_response(400, "invalid_argument", "a request must have one Host"));
    }
    // A target in absolute form names the host as well; a request may name no foreign one.
    std::string_view target = to_std(message.target());
    const auto authority = authority_of(target, &target);
    Status known;
    if (hosts == 1) known = server_.hosts.check(to_std(message[bhttp::field::host]));
    if (known.is_ok() && authority) known = server_.hosts.check(*authority);
    if (!known.is_ok()) {
      keep_alive_ = false;
      return write(error_response(known.code() == Code::kInvalidArgument ? 400 : 421,
                                  code_name(known.code()), known.message()));
    }
    if (message.method() != bhttp::verb::get && !head_) {
      return write(error_response(405, "invalid_argument",
                                  "only GET and HEAD are answered here; changes go through gRPC "
                                  "(the `tailor` command)"));
    }
    Request request;
    request.method = head_ ? "HEAD" : "GET";
    if (const Status parsed = parse_target(target, request); !parsed.is_ok()) {
      return write(error_response(parsed));
    }
    request.accepts_gzip = names_gzip(to_std(message[bhttp::field::accept_encoding]));
    request.if_none_match = std::string(to_std(message[bhttp::field::if_none_match]));
    if (!server_.options.quick || server_.options.quick(request.path)) {
      return write(handle(request));
    }
    stream_.expires_never();  // the handler has no deadline; reading and writing have
    const bool posted = server_.work.post([self = shared_from_this(), request] {
      auto response = std::make_shared<Response>(self->handle(request));
      asio::post(self->stream_.get_executor(),
                 [self, response] { self->write(std::move(*response)); });
    });
    if (!posted) {
      write(error_response(503, "resource_exhausted",
                           "too many requests are waiting; try again later"));
    }
  }

  Response handle(const Request& request) {
    try {
      return server_.handler(request);
    } catch (const std::exception& thrown) {
      log_error("http", "handler threw", {{"path", request.path}, {"what", thrown.what()}});
      return error_response(500, "internal", "internal error; the coordinator's log says more");
    }
  }

  void write(Response response) {
    body_ = std::move(response.body);
    const std::string_view bytes = body_.empty() ? response.fixed : std::string_view(body_);
    message_ = {};
    message_.version(version_);
    message_.result(static_cast<unsigned>(response.status));
    message_.keep_alive(keep_alive_);
    message_.set(bhttp::field::server, "tailor");
    message_.set(bhttp::field::content_type, response.content_type);
    message_.set(bhttp::field::cache_control, response.cache_control);
    message_.set(bhttp::field::vary, "Accept-Encoding");
    message_.set("X-Content-Type-Options", "nosniff");
    message_.set("Referrer-Policy", "no-referrer");
    message_.set("Content-Security-Policy", to_beast(kContentSecurityPolicy));
    if (response.status == 405) message_.set(bhttp::field::allow, "GET, HEAD");
    if (response.gzip) message_.set(bhttp::field::content_encoding, "gzip");
    if (!response.etag.empty()) message_.set(bhttp::field::etag, response.etag);
    // 304 has no body and must not claim a length of one.
    if (response.status != 304) message_.content_length(bytes.size());
    const bool bodiless = head_ || response.status == 304;
    message_.body().data = bodiless || bytes.empty() ? nullptr : const_cast<char*>(bytes.data());
    message_.body().size = bodiless ? 0 : bytes.size();
    message_.body().more = false;
    serializer_.emplace(message_);
    stream_.expires_after(std::chrono::milliseconds(server_.options.write_ms_max));
    const auto written = [self = shared_from_this()](beast::error_code failed, std::size_t) {
      if (failed || !self->keep_alive_) return self->close();
      self->read();
    };
    if (bodiless) {
      bhttp::async_write_header(stream_, *serializer_, written);
    } else {
      bhttp::async_write(stream_, *serializer_, written);
    }
  }

  void close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  Server::Impl& server_;
  beast::flat_buffer buffer_{64 * 1024 + 16 * 1024};
  std::optional<bhttp::request_parser<bhttp::string_body>> parser_;
  std::string body_;
  bhttp::response<bhttp::buffer_body> message_;
  std::optional<bhttp::response_serializer<bhttp::buffer_body>> serializer_;
  bool keep_alive_ = false;
  bool head_ = false;
  unsigned version_ = 11;
  std::optional<std::list<Connection*>::iterator> silent_at_;  // its place in `silent`
  bool given_up_ = false;                                      // its place is given to another
};

namespace {

/// Connections that were given up and are not closed yet.
constexpr std::size_t kClosingMax = 64;

/// What fits into the empty buffer of a new connection is sent at once; nobody is waited for.
void refuse(tcp::socket& socket) {
  static const std::string kAnswer = [] {
    const std::string body =
        error_response(503, "resource_exhausted",
                       "this port has as many connections as it takes; close some, or try again")
            .body;
    return fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n{}",
        body.size(), body);
  }();
  beast::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.send(asio::buffer(kAnswer), 0, ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

}  // namespace

bool Server::Impl::make_room() {
  const std::scoped_lock lock(silent_mutex);
  for (Connection* const connection : silent) {
    if (connection->give_way()) return true;
  }
  return false;
}

void Server::Impl::accept() {
  acceptor.async_accept(
      asio::make_strand(context), [this](beast::error_code failed, tcp::socket socket) {
        if (failed == asio::error::operation_aborted) return;
        if (failed) {
          // Out of file descriptors, most likely: wait instead of spinning, and say it once.
          if (!std::exchange(cannot_accept, true)) {
            log_warn("http", "cannot accept connections", {{"reason", failed.message()}});
          }
          pause.expires_after(std::chrono::milliseconds(200));
          pause.async_wait([this](beast::error_code ended) {
            if (!ended) accept();
          });
          return;
        }
        if (std::exchange(cannot_accept, false)) log_info("http", "connections are taken again");
        const std::size_t open = connections.load();
        const std::size_t most = options.connections_max;
        if (open < most || (open < most + kClosingMax && make_room())) {
          const auto connection = std::make_shared<Connection>(std::move(socket), *this);
          connection->read();
        } else {
          refuse(socket);  // closed here, by its destructor
        }
        if (acceptor.is_open()) accept();
      });
}

namespace {

/// Opens, binds and listens.
Status listen_on(const std::string& listen, tcp::acceptor& acceptor) {
  TAILOR_ASSIGN_OR_RETURN(auto address, split_address(listen));
  boost::system::error_code failed;
  const std::string host = address.first == "localhost" ? "127.0.0.1" : address.first;
  const auto ip = asio::ip::make_address(host, failed);
  if (failed) {
    return {Code::kInvalidArgument,
            fmt::format("\"{}\" is no IP address; use a numeric one, such as 127.0.0.1 or 0.0.0.0",
                        address.first)};
  }
  const tcp::endpoint endpoint(ip, address.second);
  const auto step = [&](auto&& action) {
    if (!failed) action();
  };
  step([&] { acceptor.open(endpoint.protocol(), failed); });
  step([&] { acceptor.set_option(asio::socket_base::reuse_address(true), failed); });
  step([&] { acceptor.bind(endpoint, failed); });
  step([&] { acceptor.listen(asio::socket_base::max_listen_connections, failed); });
  if (!failed) return Status::ok();
  const bool taken = failed == asio::error::address_in_use;
  return {taken ? Code::kAlreadyExists : Code::kUnavailable,
          fmt::format("cannot listen on {}: {}{}", listen, failed.message(),
                      taken ? " (is another coordinator running?)" : "")};
}

}  // namespace

Status check_listen(const std::string& address) {
  asio::io_context context;
  tcp::acceptor acceptor(context);
  return listen_on(address, acceptor);
}

Result<std::unique_ptr<Server>> Server::start(Options options, Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  TAILOR_RETURN_IF_ERROR(listen_on(options.listen, impl->acceptor));
  impl->port = impl->acceptor.local_endpoint().port();
  impl->accept();
  for (int i = 0; i < options.threads; ++i) {
    impl->threads.emplace_back([raw = impl.get()] { raw->context.run(); });
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

int Server::port() const { return impl_->port; }

void Server::stop() {
  std::call_once(impl_->stopped, [this] {
    // Handlers that run are let finish; connections die with the context.
    impl_->work.stop();
    impl_->context.stop();
    impl_->threads.clear();  // joins
    boost::system::error_code ignored;
    impl_->acceptor.close(ignored);
  });
}

}  // namespace tailor::http
