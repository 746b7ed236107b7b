#include "model/train/ranks/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/check.h"
#include "base/logging.h"
#include "model/train/ranks/backend.h"

namespace tailor::train::ranks {
namespace {

constexpr std::size_t kTextBytes = 1000;
constexpr std::int64_t kLookMs = 200;  // between two looks at give_up

// A mesh's rendezvous in a c10d store.
class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(c10d::Store& store, const Clock& clock) : store_(store), clock_(clock) {}

  Status publish(const std::string& key, const std::string& value) override {
    return guarded([&] { store_.set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  }
  Result<std::string> find(const std::string& key, MonotonicMs deadline_ms) override {
    std::string value;
    TAILOR_RETURN_IF_ERROR(guarded([&] {
      const std::int64_t left_ms = std::max<std::int64_t>(1, deadline_ms - clock_.now_ms());
      store_.wait({key}, std::chrono::milliseconds(left_ms));
      const std::vector<std::uint8_t> bytes = store_.get(key);
      value.assign(bytes.begin(), bytes.end());
    }));
    return value;
  }

 private:
  static Status guarded(const std::function<void()>& body) {
    try {
      body();
      return Status::ok();
    } catch (const c10::Error& failure) {
      return Status(Code::kDeadlineExceeded, failure.what_without_backtrace());
    } catch (const std::exception& failure) {
      return Status(Code::kUnavailable, failure.what());
    }
  }

  c10d::Store& store_;
  const Clock& clock_;
};

// Until rank 0 listens. The store would wait too, but could not be interrupted.
Status await_rank_0(const GroupOptions& options, const Clock& clock) {
  if (options.rank == 0) return Status::ok();
  const MonotonicMs deadline_ms = clock.now_ms() + options.meet_ms;
  for (;;) {
    const auto socket =
        connect_to(options.rendezvous, clock, std::min(deadline_ms, clock.now_ms() + kLookMs));
    if (socket) return Status::ok();
    if (const auto reason = options.give_up()) return Status(Code::kCancelled, *reason);
    if (socket.error().code() != Code::kDeadlineExceeded || clock.now_ms() >= deadline_ms) {
      return socket.error().with_context(fmt::format("rank {} looks for rank 0", options.rank));
    }
  }
}

// The store: rank 0 serves it on the rendezvous address and nowhere else.
Result<c10::intrusive_ptr<c10d::Store>> open_store(GroupOptions& options) {
  c10d::TCPStoreOptions store;
  store.numWorkers = static_cast<std::size_t>(options.size);
  store.waitWorkers = false;
  store.timeout = std::chrono::milliseconds(options.meet_ms);
  store.useLibUV = false;  // the other server takes no listening socket
  store.isServer = options.rank == 0;
  if (store.isServer) {
    if (!options.listener.is_open()) {
      TAILOR_ASSIGN_OR_RETURN(options.listener, listen_on(options.rendezvous));
    }
    TAILOR_ASSIGN_OR_RETURN(const Endpoint mine, local_endpoint(options.listener));
    options.rendezvous.port = mine.port;
    store.masterListenFd = options.listener.release();
  }
  store.port = static_cast<std::uint16_t>(options.rendezvous.port);
  try {
    return c10::intrusive_ptr<c10d::Store>(
        c10::make_intrusive<c10d::TCPStore>(options.rendezvous.host, store));
  } catch (const std::exception& failure) {
    const std::string what = failure.what();
    return error(Code::kDeadlineExceeded,
                 fmt::format("rank {} does not reach rank 0 at {}: {}", options.rank,
                             to_string(options.rendezvous), what.substr(0, what.find('\n'))));
  }
}

c10::intrusive_ptr<c10d::ProcessGroup> group_over(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const c10::intrusive_ptr<c10d::Backend>& backend,
                                                  at::DeviceType device) {
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  const auto type = device == at::kCPU ? c10d::ProcessGroup::BackendType::CUSTOM
                                       : c10d::ProcessGroup::BackendType::NCCL;
  group->setBackend(device, type, backend);
  group->setDefaultBackend(type);
  return group;
}

// Why `backend` no longer does what it is asked, "" when it does.
std::string backend_trouble(const c10::intrusive_ptr<c10d::Backend>& backend) {
  switch (backend->getError()) {
    case c10d::ErrorType::SUCCESS:
      return "";
    case c10d::ErrorType::TIMEOUT:
      return backend->getBackendName() + " gave up waiting for another rank";
    case c10d::ErrorType::COMM_ERROR:
      return backend->getBackendName() + " lost the connection to another rank";
    case c10d::ErrorType::REMOTE_ERROR:
      return backend->getBackendName() + " failed on another rank";
  }
  return backend->getBackendName() + " reports an error";
}

}  // namespace

Group::Group() = default;

Group::Group(std::unique_ptr<Mesh> mesh) : rank_(mesh->rank()), mesh_(std::move(mesh)) {
  process_group_ = group_over({}, c10::make_intrusive<MeshBackend>(*mesh_), at::kCPU);
}

Group::~Group() { leave(); }

Result<std::unique_ptr<Group>> Group::join(GroupOptions options, const Clock& clock) {
  TAILOR_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size);
  if (options.size == 1) return std::make_unique<Group>();
  TAILOR_RETURN_IF_ERROR(await_rank_0(options, clock));
  TAILOR_ASSIGN_OR_RETURN(const auto store, open_store(options));
  MeshOptions mesh_options;
  mesh_options.rank = options.rank;
  mesh_options.size = options.size;
  TAILOR_ASSIGN_OR_RETURN(mesh_options.address, address_towards(options.rendezvous));
  mesh_options.group = options.group;
  mesh_options.meet_ms = options.meet_ms;
  mesh_options.lost_after_ms = options.lost_after_ms;
  mesh_options.give_up = options.give_up;
  StoreRendezvous rendezvous(*store, clock);
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<Mesh> mesh, Mesh::join(mesh_options, rendezvous, clock));
  auto group = std::make_unique<Group>(std::move(mesh));
  if (!options.make_backend) return group;
  const auto backend = options.make_backend(c10::make_intrusive<c10d::PrefixStore>("device", store),
                                            options.rank, options.size, options.device);
  group->store_ = store;
  group->process_group_ = group_over(store, backend, options.device.type());
  // A host that waits for a sum with a lost rank would wait for ever.
  group->mesh_->on_end([backend] {
    try {
      backend->abort();
    } catch (const std::exception& failure) {
      log_warn("trainer", "the ranks' communicator could not be aborted",
               {{"reason", failure.what()}});
    }
  });
  return group;
}

Share Group::share(std::int64_t rows) const {
  const std::int64_t begin = rows * rank() / size();
  return {begin, rows * (rank() + 1) / size() - begin};
}

void Group::lost() const { throw GroupLost(mesh_->reason()); }

void Group::require(const Status& status) const {
  if (!status) lost();
}

void Group::sum(const at::Tensor& x) {
  if (!mesh_) return;
  std::vector<at::Tensor> tensors{x};
  try {
    process_group_->allreduce(tensors)->wait();
  } catch (const std::exception&) {
    if (!mesh_->ended()) throw;
    lost();
  }
}

void Group::copy_from_first(const at::Tensor& x) {
  if (!mesh_) return;
  std::vector<at::Tensor> tensors{x};
  try {
    process_group_->broadcast(tensors)->wait();
  } catch (const std::exception&) {
    if (!mesh_->ended()) throw;
    lost();
  }
}

void Group::sum(std::span<double> values) {
  if (mesh_) require(mesh_->sum(values));
}

std::vector<std::string> Group::gather(const std::string& text) {
  if (!mesh_) return {text};
  std::vector<char> mine(kTextBytes + 1);
  text.copy(mine.data(), kTextBytes);
  std::vector<char> all(mine.size() * static_cast<std::size_t>(size()));
  require(mesh_->gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
    texts.emplace_back(all.data() + r * mine.size());
  }
  return texts;
}

std::optional<std::string> Group::agree(const std::optional<std::string>& reason) {
  if (!mesh_) return reason;
  double asking = reason ? 1 : 0;
  sum(std::span(&asking, 1));
  if (asking == 0) return std::nullopt;
  const std::vector<std::string> texts = gather(reason.value_or(""));
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (!texts[r].empty()) return r == 0 ? texts[r] : fmt::format("rank {}: {}", r, texts[r]);
  }
  return "asked to stop";
}

void Group::confirm(std::span<const double> numbers, std::string_view what) {
  if (!mesh_) return;
  if (const std::string trouble = backend_trouble(process_group_->getDefaultBackend());
      !trouble.empty()) {
    mesh_->end(protocol::EndClass::kInfrastructure, trouble);
    lost();
  }
  std::vector<double> all(numbers.size() * static_cast<std::size_t>(size()));
  require(mesh_->gather(std::as_bytes(numbers), std::as_writable_bytes(std::span(all))));
  const auto same = [](double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::abs(a - b) <= kSameNumbers * std::max(std::abs(a), std::abs(b));
  };
  for (std::size_t i = numbers.size(); i < all.size(); ++i) {
    const double first = all[i % numbers.size()];
    if (same(all[i], first)) continue;
    mesh_->end(protocol::EndClass::kInfrastructure,
               fmt::format("{} differ: {} on rank 0, {} on rank {}; a sum over the ranks was cut "
                           "short, or a device computes wrong numbers",
                           what, first, all[i], i / numbers.size()));
    lost();
  }
}

std::optional<GroupEnd> Group::ended(std::int64_t wait_ms) const {
  return mesh_ ? mesh_->ended(wait_ms) : std::optional<GroupEnd>();
}

void Group::end(protocol::EndClass end, const std::string& message) {
  if (mesh_) mesh_->end(end, message);
}

void Group::leave() {
  if (!mesh_) return;
  mesh_->on_end({});
  mesh_->leave();
  process_group_.reset();
  mesh_.reset();
  store_.reset();
}

}  // namespace tailor::train::ranks
