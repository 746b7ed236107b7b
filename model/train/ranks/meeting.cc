#include "model/train/ranks/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tailor::train::ranks {
namespace {

constexpr std::uint64_t kMagic = 0x316b6e61726c6154;  // "Talrank1"
constexpr std::int64_t kLookMs = 200;                 // between two looks at give_up
constexpr std::int64_t kHelloMs = 5'000;              // a caller must introduce itself in this time

enum class Channel : std::int32_t { kControl = 0, kData = 1 };

// What a caller says first.
struct Hello {
  std::uint64_t magic = kMagic;
  std::array<char, 32> secret{};
  std::int32_t rank = 0;
  Channel channel = Channel::kControl;
  std::int64_t pid = 0;
  std::array<char, 64> host{};
};
static_assert(std::is_trivially_copyable_v<Hello>);

std::string this_host() {
  std::array<char, 64> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

Result<std::string> new_secret() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return error(Code::kUnavailable, "the system gives no random numbers");
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string key_of(int rank) { return fmt::format("rank/{}", rank); }

// Repeats a wait until its time is over or it is given up.
template <typename T>
Result<T> patiently(const MeetingOptions& options, const Clock& clock,
                    const std::function<Result<T>(MonotonicMs deadline_ms)>& wait) {
  for (;;) {
    if (const auto reason = options.give_up()) return error(Code::kCancelled, *reason);
    const MonotonicMs until_ms = std::min(options.deadline_ms, clock.now_ms() + kLookMs);
    Result<T> result = wait(until_ms);
    if (result || result.error().code() != Code::kDeadlineExceeded ||
        clock.now_ms() >= options.deadline_ms) {
      return result;
    }
  }
}

// Calls rank `peer.rank` on both channels.
Status call(Peer& peer, const Endpoint& endpoint, const Hello& base, const Clock& clock,
            MonotonicMs deadline_ms) {
  for (const Channel channel : {Channel::kControl, Channel::kData}) {
    TAILOR_ASSIGN_OR_RETURN(Socket socket, connect_to(endpoint, clock, deadline_ms));
    Hello hello = base;
    hello.channel = channel;
    TAILOR_RETURN_IF_ERROR(
        send_all(socket, std::as_bytes(std::span(&hello, 1)), clock, deadline_ms));
    (channel == Channel::kControl ? peer.control : peer.data) = std::move(socket);
  }
  return Status::ok();
}

// Takes calls until every rank above this one has made both; strangers are hung up on.
Status take_calls(std::vector<Peer>& peers, const Socket& listener, const std::string& secret,
                  const MeetingOptions& options, const Clock& clock) {
  const auto missing = [&] {
    std::vector<int> ranks;
    for (const Peer& peer : peers) {
      if (!peer.control.is_open() || !peer.data.is_open()) ranks.push_back(peer.rank);
    }
    return ranks;
  };
  while (!missing().empty()) {
    Result<Socket> socket = patiently<Socket>(options, clock, [&](MonotonicMs until_ms) {
      return accept_from(listener, clock, until_ms);
    });
    if (!socket) {
      if (socket.error().code() == Code::kCancelled) return socket.error();
      return Status(socket.error().code(),
                    fmt::format("rank {} waited in vain for rank {}: {}", options.rank,
                                fmt::join(missing(), ", "), socket.error().message()));
    }
    Hello hello;
    const MonotonicMs limit_ms = std::min(options.deadline_ms, clock.now_ms() + kHelloMs);
    if (!receive_all(*socket, std::as_writable_bytes(std::span(&hello, 1)), clock, limit_ms) ||
        hello.magic != kMagic ||
        std::memcmp(hello.secret.data(), secret.data(), hello.secret.size()) != 0) {
      continue;
    }
    const auto peer = std::find_if(peers.begin(), peers.end(),
                                   [&](const Peer& one) { return one.rank == hello.rank; });
    if (peer == peers.end() || peer->rank < options.rank) continue;
    Socket& place = hello.channel == Channel::kControl ? peer->control : peer->data;
    if (place.is_open()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("two processes say that they are rank {}", hello.rank));
    }
    place = std::move(*socket);
    peer->pid = hello.pid;
    hello.host.back() = '\0';
    peer->host = hello.host.data();
  }
  return Status::ok();
}

}  // namespace

std::string Peer::name() const {
  return fmt::format("rank {} (process {} on {})", rank, pid, host);
}

Result<std::vector<Peer>> meet(const MeetingOptions& options, Rendezvous& rendezvous,
                               const Clock& clock) {
  TAILOR_ASSIGN_OR_RETURN(const Socket listener, listen_on({options.address, 0}));
  TAILOR_ASSIGN_OR_RETURN(const Endpoint mine, local_endpoint(listener));
  const std::string host = this_host();
  const auto pid = static_cast<std::int64_t>(::getpid());
  if (options.rank == 0) {
    TAILOR_ASSIGN_OR_RETURN(const std::string secret, new_secret());
    TAILOR_RETURN_IF_ERROR(rendezvous.publish("secret", secret));
  }
  const nlohmann::json card = {{"host", mine.host},      {"port", mine.port},
                               {"name", host},           {"pid", pid},
                               {"group", options.group}, {"size", options.size}};
  TAILOR_RETURN_IF_ERROR(rendezvous.publish(key_of(options.rank), card.dump()));
  const auto find = [&](const std::string& key, int rank) -> Result<std::string> {
    Result<std::string> value = patiently<std::string>(
        options, clock, [&](MonotonicMs until_ms) { return rendezvous.find(key, until_ms); });
    if (value || value.error().code() == Code::kCancelled) return value;
    return error(value.error().with_context(fmt::format("rank {} has not come", rank)));
  };
  TAILOR_ASSIGN_OR_RETURN(std::string secret, find("secret", 0));

  Hello hello;
  secret.resize(hello.secret.size());
  std::memcpy(hello.secret.data(), secret.data(), hello.secret.size());
  hello.rank = options.rank;
  hello.pid = pid;
  host.copy(hello.host.data(), hello.host.size() - 1);

  std::vector<Peer> peers;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) continue;
    Peer& peer = peers.emplace_back();
    peer.rank = rank;
    if (rank > options.rank) continue;
    TAILOR_ASSIGN_OR_RETURN(const std::string text, find(key_of(rank), rank));
    const nlohmann::json other = parse_json(text).value_or(nullptr);
    if (!other.is_object()) {
      return error(Code::kInvalidArgument,
                   fmt::format("what rank {} published is not Tailor's", rank));
    }
    if (other.value("size", 0) != options.size || other.value("group", "") != options.group) {
      return error(
          Code::kInvalidArgument,
          fmt::format("rank {} of {} works on \"{}\", rank {} of {} on \"{}\": all ranks need the "
                      "same spec, data and number of ranks",
                      rank, other.value("size", 0), other.value("group", ""), options.rank,
                      options.size, options.group));
    }
    peer.host = other.value("name", "unknown");
    peer.pid = other.value("pid", std::int64_t{0});
    const Endpoint endpoint{other.value("host", ""), other.value("port", 0)};
    TAILOR_RETURN_IF_ERROR(call(peer, endpoint, hello, clock, options.deadline_ms)
                               .with_context(fmt::format("calling {}", peer.name())));
  }
  TAILOR_RETURN_IF_ERROR(take_calls(peers, listener, secret, options, clock));

  // Nobody counts silence before everybody has met everybody.
  const std::byte ready{1};
  for (const Peer& peer : peers) {
    TAILOR_RETURN_IF_ERROR(send_all(peer.control, std::span(&ready, 1), clock, options.deadline_ms)
                               .with_context(peer.name()));
  }
  for (const Peer& peer : peers) {
    std::byte answer{0};
    TAILOR_RETURN_IF_ERROR(
        receive_all(peer.control, std::span(&answer, 1), clock, options.deadline_ms)
            .with_context("while the ranks met: " + peer.name()));
  }
  return peers;
}

}  // namespace tailor::train::ranks
