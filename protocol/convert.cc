// Field by field, in the order of the .proto files.
#include "protocol/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "tailor/v1/architecture.pb.h"
#include "tailor/v1/trial.pb.h"
#include "tailor/v1/worker.pb.h"

namespace tailor::protocol {
namespace {

namespace json = google::protobuf::util;

std::string utf8(std::string text) { return with_valid_utf8(std::move(text)); }

template <typename... Parts>
tl::unexpected<Status> refuse(fmt::format_string<Parts...> format, Parts&&... parts) {
  return error(Code::kInvalidArgument, fmt::format(format, std::forward<Parts>(parts)...));
}

/// Pairs of plain and generated enum values; the generated 0 ("unspecified") is in no table.
template <typename Plain, typename Proto>
struct EnumPair {
  Plain plain;
  Proto proto;
};

constexpr EnumPair<shape::Family, v1::Family> kFamilies[] = {
    {shape::Family::kLlama, v1::FAMILY_LLAMA}, {shape::Family::kOlmo2, v1::FAMILY_OLMO2}};
constexpr EnumPair<shape::FfnKind, v1::FfnKind> kFfnKinds[] = {
    {shape::FfnKind::kSwiglu, v1::FFN_KIND_SWIGLU},
    {shape::FfnKind::kHourglass, v1::FFN_KIND_HOURGLASS}};
constexpr EnumPair<shape::FfnNorm, v1::FfnNorm> kFfnNorms[] = {
    {shape::FfnNorm::kPerSub, v1::FFN_NORM_PER_SUB},
    {shape::FfnNorm::kPerSubGainless, v1::FFN_NORM_PER_SUB_GAINLESS},
    {shape::FfnNorm::kFirstOnly, v1::FFN_NORM_FIRST_ONLY},
    {shape::FfnNorm::kPerSubPost, v1::FFN_NORM_PER_SUB_POST},
    {shape::FfnNorm::kNone, v1::FFN_NORM_NONE}};
constexpr EnumPair<LrScheduleKind, v1::LrScheduleKind> kLrSchedules[] = {
    {LrScheduleKind::kCosine, v1::LR_SCHEDULE_KIND_COSINE},
    {LrScheduleKind::kConstant, v1::LR_SCHEDULE_KIND_CONSTANT},
    {LrScheduleKind::kWsd, v1::LR_SCHEDULE_KIND_WSD}};
// Fields of later versions: in a spec without them "unspecified" stands for the default.
constexpr EnumPair<DecayShape, v1::DecayShape> kDecayShapes[] = {
    {DecayShape::kLinear, v1::DECAY_SHAPE_LINEAR},
    {DecayShape::kOneMinusSqrt, v1::DECAY_SHAPE_ONE_MINUS_SQRT},
    {DecayShape::kLinear, v1::DECAY_SHAPE_UNSPECIFIED}};
constexpr EnumPair<LrMode, v1::LrMode> kLrModes[] = {{LrMode::kFixed, v1::LR_MODE_FIXED},
                                                     {LrMode::kStepLaw, v1::LR_MODE_STEP_LAW},
                                                     {LrMode::kMup, v1::LR_MODE_MUP},
                                                     {LrMode::kFixed, v1::LR_MODE_UNSPECIFIED}};
constexpr EnumPair<DownInit, v1::DownInit> kDownInits[] = {
    {DownInit::kFixed, v1::DOWN_INIT_FIXED},
    {DownInit::kFanIn, v1::DOWN_INIT_FAN_IN},
    {DownInit::kFixed, v1::DOWN_INIT_UNSPECIFIED}};
constexpr EnumPair<Precision, v1::Precision> kPrecisions[] = {
    {Precision::kF32, v1::PRECISION_F32}, {Precision::kBf16, v1::PRECISION_BF16}};
constexpr EnumPair<DeviceKind, v1::DeviceKind> kDevices[] = {
    {DeviceKind::kCpu, v1::DEVICE_KIND_CPU}, {DeviceKind::kGpu, v1::DEVICE_KIND_GPU}};
constexpr EnumPair<EndClass, v1::EndClass> kEnds[] = {
    {EndClass::kCompleted, v1::END_CLASS_COMPLETED},
    {EndClass::kStopped, v1::END_CLASS_STOPPED},
    {EndClass::kUser, v1::END_CLASS_USER},
    {EndClass::kOom, v1::END_CLASS_OOM},
    {EndClass::kNan, v1::END_CLASS_NAN},
    {EndClass::kData, v1::END_CLASS_DATA},
    {EndClass::kTimeout, v1::END_CLASS_TIMEOUT},
    {EndClass::kPreempted, v1::END_CLASS_PREEMPTED},
    {EndClass::kNodeLost, v1::END_CLASS_NODE_LOST},
    {EndClass::kLeaseLost, v1::END_CLASS_LEASE_LOST},
    {EndClass::kInfrastructure, v1::END_CLASS_INFRASTRUCTURE}};

template <typename Plain, typename Proto, std::size_t N>
Proto enum_to(const EnumPair<Plain, Proto> (&table)[N], Plain value) {
  for (const auto& pair : table) {
    if (pair.plain == value) return pair.proto;
  }
  TAILOR_CHECK(false, "enum value {} has no proto counterpart", static_cast<int>(value));
  return table[0].proto;
}

template <typename Plain, typename Proto, std::size_t N>
Result<Plain> enum_from(const EnumPair<Plain, Proto> (&table)[N], Proto value,
                        std::string_view field) {
  for (const auto& pair : table) {
    if (pair.proto == value) return pair.plain;
  }
  if (static_cast<int>(value) == 0) return refuse("{} is unset", field);
  return refuse("{} has the unknown value {}", field, static_cast<int>(value));
}

// ---- pieces of TrialSpec

void write(const DataSpec& value, v1::DataSpec* out) {
  out->set_train(utf8(value.train));
  out->set_validation(utf8(value.validation));
  out->set_sequence_length(value.sequence_length);
}

DataSpec read(const v1::DataSpec& proto) {
  return {proto.train(), proto.validation(), proto.sequence_length()};
}

void write(const TrainSpec& value, v1::TrainSpec* out) {
  out->set_tokens(value.tokens);
  out->set_batch_tokens(value.batch_tokens);
  out->set_micro_batch_tokens(value.micro_batch_tokens);
  auto* optimizer = out->mutable_optimizer();
  optimizer->set_lr(value.optimizer.lr);
  optimizer->set_beta1(value.optimizer.beta1);
  optimizer->set_beta2(value.optimizer.beta2);
  optimizer->set_eps(value.optimizer.eps);
  optimizer->set_weight_decay(value.optimizer.weight_decay);
  optimizer->set_clip(value.optimizer.clip);
  optimizer->set_lr_mode(enum_to(kLrModes, value.optimizer.lr_mode));
  optimizer->set_mup_base_width(value.optimizer.mup_base_width);
  auto* schedule = out->mutable_schedule();
  schedule->set_kind(enum_to(kLrSchedules, value.schedule.kind));
  // Only the one that counts is written, so that whoever edits spec.json never sets the other in
  // vain. Readers without presence need the -1.
  if (value.schedule.warmup_steps < 0) {
    schedule->set_warmup_fraction(value.schedule.warmup_fraction);
  }
  schedule->set_warmup_steps(value.schedule.warmup_steps);
  schedule->set_final_fraction(value.schedule.final_fraction);
  schedule->set_decay_fraction(value.schedule.decay_fraction);
  schedule->set_decay_shape(enum_to(kDecayShapes, value.schedule.decay_shape));
  out->set_precision(enum_to(kPrecisions, value.precision));
  out->set_log_every_steps(value.log_every_steps);
  out->set_evaluate_every_tokens(value.evaluate_every_tokens);
  out->set_checkpoint_every_ms(value.checkpoint_every_ms);
  out->set_validation_tokens(value.validation_tokens);
  out->set_init_std(value.init_std);
  out->set_down_init(enum_to(kDownInits, value.down_init));
  out->set_z_loss(value.z_loss);
  out->set_recompute(value.recompute);
  out->set_keep_last(value.keep_last);
  out->set_keep_best(value.keep_best);
  out->set_nan_skip_limit(value.nan_skip_limit);
}

Result<TrainSpec> read(const v1::TrainSpec& proto) {
  if (!proto.has_optimizer()) return refuse("TrainSpec.optimizer is missing");
  if (!proto.has_schedule()) return refuse("TrainSpec.schedule is missing");
  TrainSpec out;
  out.tokens = proto.tokens();
  out.batch_tokens = proto.batch_tokens();
  out.micro_batch_tokens = proto.micro_batch_tokens();
  const auto& optimizer = proto.optimizer();
  out.optimizer.lr = optimizer.lr();
  out.optimizer.beta1 = optimizer.beta1();
  out.optimizer.beta2 = optimizer.beta2();
  out.optimizer.eps = optimizer.eps();
  out.optimizer.weight_decay = optimizer.weight_decay();
  out.optimizer.clip = optimizer.clip();
  TAILOR_ASSIGN_OR_RETURN(out.optimizer.lr_mode,
                          enum_from(kLrModes, optimizer.lr_mode(), "OptimizerSpec.lr_mode"));
  if (optimizer.has_mup_base_width()) out.optimizer.mup_base_width = optimizer.mup_base_width();
  TAILOR_ASSIGN_OR_RETURN(out.schedule.kind,
                          enum_from(kLrSchedules, proto.schedule().kind(), "LrScheduleSpec.kind"));
  out.schedule.warmup_steps = proto.schedule().warmup_steps();
  if (out.schedule.warmup_steps < 0 || proto.schedule().has_warmup_fraction()) {
    out.schedule.warmup_fraction = proto.schedule().warmup_fraction();
  }
  out.schedule.final_fraction = proto.schedule().final_fraction();
  if (proto.schedule().has_decay_fraction()) {
    out.schedule.decay_fraction = proto.schedule().decay_fraction();
  }
  TAILOR_ASSIGN_OR_RETURN(
      out.schedule.decay_shape,
      enum_from(kDecayShapes, proto.schedule().decay_shape(), "LrScheduleSpec.decay_shape"));
  TAILOR_ASSIGN_OR_RETURN(out.precision,
                          enum_from(kPrecisions, proto.precision(), "TrainSpec.precision"));
  out.log_every_steps = proto.log_every_steps();
  out.evaluate_every_tokens = proto.evaluate_every_tokens();
  out.checkpoint_every_ms = proto.checkpoint_every_ms();
  out.validation_tokens = proto.validation_tokens();
  out.init_std = proto.init_std();
  TAILOR_ASSIGN_OR_RETURN(out.down_init,
                          enum_from(kDownInits, proto.down_init(), "TrainSpec.down_init"));
  out.z_loss = proto.z_loss();
  out.recompute = proto.recompute();
  if (proto.has_keep_last()) out.keep_last = proto.keep_last();
  out.keep_best = proto.keep_best();
  out.nan_skip_limit = proto.nan_skip_limit();
  return out;
}

void write(const GeometrySpec& value, v1::GeometrySpec* out) {
  out->set_enabled(value.enabled);
  out->mutable_layers()->Add(value.layers.begin(), value.layers.end());
  out->set_tokens(value.tokens);
  out->set_subsamples(value.subsamples);
  out->set_rho(value.rho);
  out->set_sub_blocks(value.sub_blocks);
  out->set_dimension(value.dimension);
}

GeometrySpec read(const v1::GeometrySpec& proto) {
  GeometrySpec out;
  out.enabled = proto.enabled();
  out.layers.assign(proto.layers().begin(), proto.layers().end());
  out.tokens = proto.tokens();
  out.subsamples = proto.subsamples();
  out.rho = proto.rho();
  out.sub_blocks = proto.sub_blocks();
  out.dimension = proto.dimension();
  return out;
}

// ---- pieces of Report

template <typename Map>
void write_values(const std::map<std::string, double>& values, Map* out) {
  for (const auto& [name, value] : values) (*out)[utf8(name)] = value;
}

void write(const StartedReport& value, v1::Report* out) {
  auto* body = out->mutable_started();
  body->set_pid(value.pid);
  body->set_host(utf8(value.host));
  body->set_device(utf8(value.device));
  body->set_version(utf8(value.version));
  body->set_data_hash(utf8(value.data_hash));
  body->set_resumed_step(value.resumed_step);
  body->set_resumed_from(utf8(value.resumed_from));
  body->set_parameters_body(value.parameters_body);
  body->set_parameters_total(value.parameters_total);
  body->set_steps_total(value.steps_total);
}

void write(const MetricReport& value, v1::Report* out) {
  auto* body = out->mutable_metric();
  body->set_step(value.step);
  body->set_tokens(value.tokens);
  write_values(value.values, body->mutable_values());
}

void write(const CheckpointReport& value, v1::Report* out) {
  auto* body = out->mutable_checkpoint();
  body->set_step(value.step);
  body->set_path(utf8(value.path));
  body->set_sha256(utf8(value.sha256));
  body->set_bytes(value.bytes);
}

void write(const ProfileReport& value, v1::Report* out) {
  auto* body = out->mutable_profile();
  body->set_step(value.step);
  body->set_tokens(value.tokens);
  body->set_subsamples(value.subsamples);
  body->set_rho(value.rho);
  body->set_seed(value.seed);
  body->set_dropped(value.dropped);
  body->set_linear_tokens(value.linear_tokens);
  body->set_subsamples_asked(value.subsamples_asked);
  body->set_positions(value.positions);
  body->set_sequences(value.sequences);
  body->set_sequences_given(value.sequences_given);
  body->set_no_error(utf8(value.no_error));
  body->mutable_subsample_tokens()->Add(value.subsample_tokens.begin(),
                                        value.subsample_tokens.end());
  body->set_failure(utf8(value.failure));
  body->set_dimension_failure(utf8(value.dimension_failure));
  for (const WorkEntry& entry : value.entries) {
    auto* item = body->add_entries();
    item->set_layer(entry.layer);
    item->set_sub_block(entry.sub_block);
    item->set_geometry(utf8(entry.geometry));
    item->set_statistic(utf8(entry.statistic));
    item->set_value(entry.value);
    if (entry.standard_error) item->set_standard_error(*entry.standard_error);
    if (entry.no_error != value.no_error) item->set_no_error(utf8(entry.no_error));
    item->mutable_subsample_values()->Add(entry.subsample_values.begin(),
                                          entry.subsample_values.end());
    if (entry.energies) {
      auto* energies = item->mutable_energies();
      energies->set_energy(entry.energies->energy);
      energies->set_identity(entry.energies->identity);
      energies->set_norm_bound(entry.energies->norm_bound);
      energies->set_second_bound(entry.energies->second_bound);
      energies->set_third_bound(entry.energies->third_bound);
      energies->set_certified(entry.energies->certified);
    }
  }
}

void write(const EndReport& value, v1::Report* out) {
  auto* body = out->mutable_end();
  body->set_end(enum_to(kEnds, value.end));
  body->set_message(utf8(value.message));
  body->set_step(value.step);
  write_values(value.values, body->mutable_values());
}

StartedReport read(const v1::StartedReport& proto) {
  return {proto.pid(),
          proto.host(),
          proto.device(),
          proto.version(),
          proto.data_hash(),
          proto.resumed_step(),
          proto.resumed_from(),
          proto.parameters_body(),
          proto.parameters_total(),
          proto.steps_total()};
}

MetricReport read(const v1::MetricReport& proto) {
  return {proto.step(), proto.tokens(), {proto.values().begin(), proto.values().end()}};
}

CheckpointReport read(const v1::CheckpointReport& proto) {
  return {proto.step(), proto.path(), proto.sha256(), proto.bytes()};
}

ProfileReport read(const v1::WorkProfile& proto) {
  ProfileReport out;
  out.step = proto.step();
  out.tokens = proto.tokens();
  out.subsamples = proto.subsamples();
  out.rho = proto.rho();
  out.seed = proto.seed();
  out.dropped = proto.dropped();
  out.linear_tokens = proto.linear_tokens();
  out.subsamples_asked = proto.subsamples_asked();
  out.positions = proto.positions();
  out.sequences = proto.sequences();
  out.sequences_given = proto.sequences_given();
  // Trainers that do not say how many positions there were drew subsamples that could overlap.
  const bool earlier = out.positions == 0;
  out.no_error = earlier ? std::string(kEarlierErrors) : proto.no_error();
  out.subsample_tokens.assign(proto.subsample_tokens().begin(), proto.subsample_tokens().end());
  out.failure = proto.failure();
  out.dimension_failure = proto.dimension_failure();
  for (const auto& entry : proto.entries()) {
    WorkEntry& one = out.entries.emplace_back();
    one.layer = entry.layer();
    one.sub_block = entry.sub_block();
    one.geometry = entry.geometry();
    one.statistic = entry.statistic();
    one.value = entry.value();
    if (!earlier && entry.has_standard_error()) {
      one.standard_error = entry.standard_error();
    } else {
      one.no_error = earlier || entry.no_error().empty() ? out.no_error : entry.no_error();
    }
    one.subsample_values.assign(entry.subsample_values().begin(), entry.subsample_values().end());
    if (entry.has_energies()) {
      const auto& of = entry.energies();
      one.energies = {of.energy(),       of.identity(),    of.norm_bound(),
                      of.second_bound(), of.third_bound(), of.certified()};
    }
  }
  return out;
}

/// An end is believed whatever its class: refused, it would be sent again for ever. A class that
/// this version does not know is nobody's fault that it could name.
EndClass end_or_other(Result<EndClass> known, const std::string& given, std::string* message) {
  if (known.has_value()) return *known;
  *message = fmt::format("(the end class {} is not known to this version) {}",
                         short_text(given, 40), *message);
  return EndClass::kInfrastructure;
}

Result<EndReport> read(const v1::EndReport& proto) {
  if (proto.end() == v1::END_CLASS_UNSPECIFIED) return refuse("EndReport.end is unset");
  EndReport out;
  out.message = proto.message();
  out.end = end_or_other(enum_from(kEnds, proto.end(), "EndReport.end"),
                         std::to_string(static_cast<int>(proto.end())), &out.message);
  out.step = proto.step();
  out.values = {proto.values().begin(), proto.values().end()};
  return out;
}

// ---- pieces of the stream

void write(const AttemptRef& value, v1::AttemptRef* out) {
  out->set_trial(value.attempt.trial.value);
  out->set_attempt(value.attempt.number);
  out->set_token(value.token);
}

/// `parent` is the message that holds the reference in its field `ref`.
template <typename Parent>
Result<AttemptRef> read_ref(const Parent& parent, std::string_view name) {
  if (!parent.has_ref()) return refuse("{}.ref is missing", name);
  return AttemptRef{{TrialId{parent.ref().trial()}, parent.ref().attempt()}, parent.ref().token()};
}

void write(const Hello& value, v1::WorkerMessage* out) {
  auto* body = out->mutable_hello();
  body->set_worker_name(utf8(value.worker_name));
  body->set_instance(utf8(value.instance));
  body->set_version(utf8(value.version));
  body->set_host(utf8(value.host));
  for (const Slot& slot : value.slots) {
    auto* item = body->add_slots();
    item->set_index(slot.index);
    item->set_kind(enum_to(kDevices, slot.kind));
    item->set_name(utf8(slot.name));
    item->set_memory_bytes(slot.memory_bytes);
    item->set_threads(slot.threads);
  }
  for (const HeldAttempt& held : value.held) {
    auto* item = body->add_held();
    write(held.ref, item->mutable_ref());
    item->mutable_slots()->Add(held.slots.begin(), held.slots.end());
    item->set_running(held.running);
    item->set_acked_sequence(held.acked_sequence);
  }
  body->set_wall_ms(value.wall_ms);
  body->set_folder(utf8(value.folder));
  body->set_memory_bytes(value.memory_bytes);
  for (const std::string& label : value.labels) body->add_labels(utf8(label));
  body->set_address(utf8(value.address));
}

void write(const Heartbeat& value, v1::WorkerMessage* out) {
  auto* body = out->mutable_heartbeat();
  body->set_serial(value.serial);
  for (const AttemptRef& ref : value.running) write(ref, body->add_running());
  body->set_wall_ms(value.wall_ms);
  body->set_unfit(utf8(value.unfit));
  body->set_disk_free_bytes(value.disk_free_bytes);
  body->set_disk_total_bytes(value.disk_total_bytes);
}

void write(const Reports& value, v1::WorkerMessage* out) {
  auto* body = out->mutable_reports();
  write(value.ref, body->mutable_ref());
  for (const Report& report : value.reports) to_proto(report, body->add_reports());
}

void write(const LogChunk& value, v1::WorkerMessage* out) {
  auto* body = out->mutable_log();
  write(value.ref, body->mutable_ref());
  body->set_offset(value.offset);
  body->set_data(value.bytes);
  body->set_left_out(value.left_out);
}

void write(const Draining& value, v1::WorkerMessage* out) {
  out->mutable_draining()->set_reason(utf8(value.reason));
}

void write(const Refused& value, v1::WorkerMessage* out) {
  auto* body = out->mutable_refused();
  write(value.ref, body->mutable_ref());
  body->set_end_class(std::string(end_class_name(value.end)));
  body->set_reason(utf8(value.reason));
}

void write(const MemberEnded& value, v1::WorkerMessage* out) {
  auto* body = out->mutable_member_ended();
  write(value.ref, body->mutable_ref());
  body->set_end_class(std::string(end_class_name(value.end)));
  body->set_message(utf8(value.message));
}

/// Both directions have it.
template <typename Message>
void write_rendezvous(const Rendezvous& value, Message* out) {
  auto* body = out->mutable_rendezvous();
  write(value.ref, body->mutable_ref());
  body->set_address(utf8(value.address));
}
void write(const Rendezvous& value, v1::WorkerMessage* out) { write_rendezvous(value, out); }
void write(const Rendezvous& value, v1::CoordinatorMessage* out) { write_rendezvous(value, out); }

Result<Rendezvous> read(const v1::Rendezvous& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "Rendezvous"));
  return Rendezvous{ref, proto.address()};
}

Result<WorkerMessage> read(const v1::Refused& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "Refused"));
  Refused out{ref, EndClass::kInfrastructure, proto.reason()};
  out.end = end_or_other(parse_end_class(proto.end_class()), proto.end_class(), &out.reason);
  return WorkerMessage(std::move(out));
}

Result<WorkerMessage> read(const v1::MemberEnded& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "MemberEnded"));
  MemberEnded out{ref, EndClass::kInfrastructure, proto.message()};
  out.end = end_or_other(parse_end_class(proto.end_class()), proto.end_class(), &out.message);
  return WorkerMessage(std::move(out));
}

Result<WorkerMessage> read(const v1::Hello& proto) {
  Hello out;
  out.worker_name = proto.worker_name();
  out.instance = proto.instance();
  out.version = proto.version();
  out.host = proto.host();
  out.wall_ms = proto.wall_ms();
  out.folder = proto.folder();
  out.memory_bytes = proto.memory_bytes();
  out.labels.assign(proto.labels().begin(), proto.labels().end());
  out.address = proto.address();
  for (const auto& slot : proto.slots()) {
    TAILOR_ASSIGN_OR_RETURN(const DeviceKind kind, enum_from(kDevices, slot.kind(), "Slot.kind"));
    out.slots.push_back({slot.index(), kind, slot.name(), slot.memory_bytes(), slot.threads()});
  }
  for (const auto& held : proto.held()) {
    TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(held, "HeldAttempt"));
    out.held.push_back(
        {ref, {held.slots().begin(), held.slots().end()}, held.running(), held.acked_sequence()});
  }
  return WorkerMessage(std::move(out));
}

Result<WorkerMessage> read(const v1::Heartbeat& proto) {
  Heartbeat out;
  out.serial = proto.serial();
  out.wall_ms = proto.wall_ms();
  out.unfit = proto.unfit();
  out.disk_free_bytes = proto.disk_free_bytes();
  out.disk_total_bytes = proto.disk_total_bytes();
  for (const auto& ref : proto.running()) {
    out.running.push_back({{TrialId{ref.trial()}, ref.attempt()}, ref.token()});
  }
  return WorkerMessage(std::move(out));
}

Result<WorkerMessage> read(const v1::Reports& proto) {
  Reports out;
  TAILOR_ASSIGN_OR_RETURN(out.ref, read_ref(proto, "Reports"));
  for (const auto& report : proto.reports()) {
    auto read = from_proto(report);
    // No reason to end the worker's stream: the report ends its attempt.
    if (!read) {
      Report unreadable{report.sequence(), report.wall_ms(), {}};
      unreadable.unreadable = read.error().message();
      read = std::move(unreadable);
    }
    out.reports.push_back(std::move(*read));
  }
  return WorkerMessage(std::move(out));
}

Result<WorkerMessage> read(const v1::LogChunk& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "LogChunk"));
  return WorkerMessage(LogChunk{ref, proto.offset(), proto.data(), proto.left_out()});
}

void write(const Welcome& value, v1::CoordinatorMessage* out) {
  auto* body = out->mutable_welcome();
  body->set_worker(value.worker.value);
  body->set_heartbeat_ms(value.heartbeat_ms);
  body->set_lease_ms(value.lease_ms);
  for (const HeldVerdict& verdict : value.held) {
    auto* item = body->add_held();
    write(verdict.ref, item->mutable_ref());
    item->set_keep(verdict.keep);
    item->set_acked_sequence(verdict.acked_sequence);
    item->set_log_offset(verdict.log_offset);
  }
}

void write(const Assign& value, v1::CoordinatorMessage* out) {
  auto* body = out->mutable_assign();
  to_proto(value.spec, body->mutable_spec());
  body->mutable_slots()->Add(value.slots.begin(), value.slots.end());
  body->set_progress_limit_ms(value.progress_limit_ms);
  body->set_time_limit_ms(value.time_limit_ms);
  if (value.gang != Gang{}) {
    body->mutable_gang()->set_first_rank(value.gang.first_rank);
    body->mutable_gang()->set_ranks(value.gang.ranks);
    body->mutable_gang()->set_world(value.gang.world);
  }
  for (const StoredCheckpoint& stored : value.stored) {
    auto* item = body->add_stored();
    item->set_attempt(stored.attempt);
    item->set_step(stored.step);
    item->set_sha256(utf8(stored.sha256));
    item->set_bytes(stored.bytes);
  }
}

void write(const HeartbeatAck& value, v1::CoordinatorMessage* out) {
  out->mutable_heartbeat_ack()->set_serial(value.serial);
}

void write(const ReportsAck& value, v1::CoordinatorMessage* out) {
  auto* body = out->mutable_reports_ack();
  write(value.ref, body->mutable_ref());
  body->set_through_sequence(value.through_sequence);
}

void write(const LogAck& value, v1::CoordinatorMessage* out) {
  auto* body = out->mutable_log_ack();
  write(value.ref, body->mutable_ref());
  body->set_through_offset(value.through_offset);
}

void write(const Stop& value, v1::CoordinatorMessage* out) {
  auto* body = out->mutable_stop();
  write(value.ref, body->mutable_ref());
  body->set_reason(std::string(stop_reason_name(value.reason)));
  body->set_discard(value.discard);
}

void write(const Drain&, v1::CoordinatorMessage* out) { out->mutable_drain(); }

Result<CoordinatorMessage> read(const v1::Welcome& proto) {
  Welcome out{WorkerId{proto.worker()}, proto.heartbeat_ms(), proto.lease_ms(), {}};
  for (const auto& held : proto.held()) {
    TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(held, "HeldVerdict"));
    out.held.push_back({ref, held.keep(), held.acked_sequence(), held.log_offset()});
  }
  return CoordinatorMessage(std::move(out));
}

Result<CoordinatorMessage> read(const v1::Assign& proto) {
  if (!proto.has_spec()) return refuse("Assign.spec is missing");
  Assign out;
  TAILOR_ASSIGN_OR_RETURN(out.spec, from_proto(proto.spec()));
  out.slots.assign(proto.slots().begin(), proto.slots().end());
  out.progress_limit_ms = proto.progress_limit_ms();
  out.time_limit_ms = proto.time_limit_ms();
  if (proto.has_gang()) {
    const auto& gang = proto.gang();
    out.gang = {gang.first_rank(), gang.ranks(), gang.world()};
    if (gang.ranks() == 0 || gang.first_rank() >= gang.world() ||
        gang.ranks() > gang.world() - gang.first_rank()) {
      return refuse("Assign.gang has ranks {} .. {} + {} of {}", gang.first_rank(),
                    gang.first_rank(), gang.ranks(), gang.world());
    }
  }
  for (const auto& stored : proto.stored()) {
    out.stored.push_back({stored.attempt(), stored.step(), stored.sha256(), stored.bytes()});
  }
  return CoordinatorMessage(std::move(out));
}

Result<CoordinatorMessage> read(const v1::ReportsAck& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "ReportsAck"));
  return CoordinatorMessage(ReportsAck{ref, proto.through_sequence()});
}

Result<CoordinatorMessage> read(const v1::LogAck& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "LogAck"));
  return CoordinatorMessage(LogAck{ref, proto.through_offset()});
}

Result<CoordinatorMessage> read(const v1::Stop& proto) {
  TAILOR_ASSIGN_OR_RETURN(const AttemptRef ref, read_ref(proto, "Stop"));
  return CoordinatorMessage(Stop{ref, parse_stop_reason(proto.reason()), proto.discard()});
}

std::string print_json(const google::protobuf::Message& message, bool indented) {
  json::JsonPrintOptions options;
  options.add_whitespace = indented;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string out;
  const auto status = json::MessageToJsonString(message, &out, options);
  TAILOR_CHECK(status.ok(), "protobuf cannot print its own message: {}", status.ToString());
  return out;
}

// ---- spec.json by hand

/// The fields of `type` and of the messages in it, as "train.optimizer.lr".
void list_fields(const google::protobuf::Descriptor& type, const std::string& prefix,
                 std::vector<std::string>* out) {
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    out->push_back(prefix + field.name());
    if (const auto* inner = field.message_type()) {
      list_fields(*inner, prefix + field.name() + ".", out);
    }
  }
}

/// What an unknown key may have meant: the same name elsewhere, or a near one beside it.
std::string hint_for(const std::string& key, const google::protobuf::Descriptor& type) {
  std::vector<std::string> all;
  list_fields(*v1::TrialSpec::descriptor(), "", &all);
  for (const std::string& path : all) {
    if (path == key || path.ends_with("." + key)) return path;
  }
  std::vector<std::string_view> beside;
  for (int i = 0; i < type.field_count(); ++i) beside.push_back(type.field(i)->name());
  return nearest_name(key, beside);
}

void find_unknown(const nlohmann::json& value, const google::protobuf::Descriptor& type,
                  const std::string& prefix, std::vector<std::string>* unknown) {
  if (value.is_array()) {
    for (const auto& item : value) find_unknown(item, type, prefix, unknown);
  }
  if (!value.is_object()) return;
  std::set<int> seen;
  for (const auto& [key, inner] : value.items()) {
    const auto* field = type.FindFieldByName(key);
    if (field == nullptr) field = type.FindFieldByCamelcaseName(key);
    if (field != nullptr && !seen.insert(field->number()).second) {
      unknown->push_back(prefix + key + " (" + field->name() +
                         " in another spelling, given twice)");
    } else if (field == nullptr) {
      const std::string hint = hint_for(key, type);
      unknown->push_back(prefix + key +
                         (hint.empty() ? "" : fmt::format(" (did you mean {}?)", hint)));
    } else if (field->message_type() != nullptr) {
      find_unknown(inner, *field->message_type(), prefix + field->name() + ".", unknown);
    }
  }
}

/// Names all unknown keys at once.
Status check_keys(std::string_view text) {
  TAILOR_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(text));
  std::vector<std::string> unknown;
  find_unknown(value, *v1::TrialSpec::descriptor(), "", &unknown);
  if (unknown.empty()) return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("unknown key{} {}; docs/trainer.md lists what there is",
                            unknown.size() > 1 ? "s" : "", fmt::join(unknown, ", ")));
}

Status check_warmup(const v1::TrialSpec& given) {
  const auto& schedule = given.train().schedule();
  const bool both =
      schedule.has_warmup_fraction() && schedule.warmup_steps() >= 0 && schedule.has_warmup_steps();
  if (!both) return Status::ok();
  // Workers of earlier versions (their files have a token) wrote the fraction's default beside the
  // steps that count.
  const bool earlier =
      given.token() != 0 && schedule.warmup_fraction() == LrScheduleSpec().warmup_fraction;
  if (earlier) return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("train.schedule.warmup_fraction is {} and warmup_steps is {}: give one "
                            "of them (warmup_steps -1 also leaves it to the fraction)",
                            schedule.warmup_fraction(), schedule.warmup_steps()));
}

/// Names all fields at once that have no default and are not there. For each, 0 or empty could
/// never run either.
Status check_required(const v1::TrialSpec& given) {
  const v1::Architecture& a = given.architecture();
  const std::pair<bool, const char*> required[] = {
      {a.d_model() != 0, "architecture.d_model"},
      {a.heads() != 0, "architecture.heads"},
      {a.head_dim() != 0, "architecture.head_dim"},
      {a.vocab_size() != 0, "architecture.vocab_size"},
      {a.widths_size() != 0, "architecture.widths"},
      {!given.data().train().empty(), "data.train"},
      {!given.data().validation().empty(), "data.validation"},
      {given.data().sequence_length() != 0, "data.sequence_length"},
      {given.train().tokens() != 0, "train.tokens"},
      {given.train().batch_tokens() != 0, "train.batch_tokens"}};
  std::vector<const char*> missing;
  for (const auto& [there, name] : required) {
    if (!there) missing.push_back(name);
  }
  if (missing.empty()) return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("{} {} missing (or 0, or empty) and {} no default; the smallest "
                            "spec.json stands in docs/trainer.md",
                            fmt::join(missing, ", "), missing.size() > 1 ? "are" : "is",
                            missing.size() > 1 ? "have" : "has"));
}

/// `given` over the defaults of trial_spec.h and of its family. A field that is there, zero or not,
/// stays as it is: this is why every field whose default is not zero is `optional` in the .proto.
v1::TrialSpec with_defaults(const v1::TrialSpec& given) {
  TrialSpec defaults;
  if (given.architecture().family() == v1::FAMILY_OLMO2) {
    defaults.architecture = shape::defaults_of(shape::Family::kOlmo2);
  }
  v1::TrialSpec whole;
  to_proto(defaults, &whole);
  whole.MergeFrom(given);
  v1::Architecture& a = *whole.mutable_architecture();
  if (!given.architecture().has_kv_heads()) a.set_kv_heads(a.heads());
  return whole;
}

Status parse_message(std::string_view text, google::protobuf::Message* out) {
  // protobuf's reader takes single quotes, names without quotes and names that come twice.
  TAILOR_RETURN_IF_ERROR(check_json(text));
  const auto status =
      json::JsonStringToMessage(google::protobuf::StringPiece(text.data(), text.size()), out);
  if (status.ok()) return Status::ok();
  return Status(Code::kInvalidArgument, status.message().ToString());
}

}  // namespace

void to_proto(const shape::Architecture& value, v1::Architecture* out) {
  out->Clear();
  out->set_family(enum_to(kFamilies, value.family));
  out->set_d_model(value.d_model);
  out->set_heads(value.heads);
  out->set_kv_heads(value.kv_heads);
  out->set_head_dim(value.head_dim);
  out->set_vocab_size(value.vocab_size);
  out->set_tie_embeddings(value.tie_embeddings);
  out->set_ffn_kind(enum_to(kFfnKinds, value.ffn_kind));
  out->set_ffn_norm(enum_to(kFfnNorms, value.ffn_norm));
  out->set_ffn_outer_residual(value.ffn_outer_residual);
  for (const shape::LayerWidths& widths : value.widths) {
    out->add_widths()->mutable_d_h()->Add(widths.begin(), widths.end());
  }
  out->set_rope_theta(value.rope_theta);
  out->set_norm_eps(value.norm_eps);
  out->set_norm_scaling(value.norm_scaling);
  out->set_residual_scaling(value.residual_scaling);
}

Result<shape::Architecture> from_proto(const v1::Architecture& proto) {
  shape::Architecture out;
  TAILOR_ASSIGN_OR_RETURN(out.family, enum_from(kFamilies, proto.family(), "Architecture.family"));
  out.d_model = proto.d_model();
  out.heads = proto.heads();
  out.kv_heads = proto.kv_heads();
  out.head_dim = proto.head_dim();
  out.vocab_size = proto.vocab_size();
  out.tie_embeddings = proto.tie_embeddings();
  TAILOR_ASSIGN_OR_RETURN(out.ffn_kind,
                          enum_from(kFfnKinds, proto.ffn_kind(), "Architecture.ffn_kind"));
  TAILOR_ASSIGN_OR_RETURN(out.ffn_norm,
                          enum_from(kFfnNorms, proto.ffn_norm(), "Architecture.ffn_norm"));
  out.ffn_outer_residual = proto.ffn_outer_residual();
  for (const auto& widths : proto.widths()) {
    out.widths.emplace_back(widths.d_h().begin(), widths.d_h().end());
  }
  out.rope_theta = proto.rope_theta();
  out.norm_eps = proto.norm_eps();
  out.norm_scaling = proto.norm_scaling();
  out.residual_scaling = proto.residual_scaling();
  TAILOR_RETURN_IF_ERROR(shape::validate(out).with_context("Architecture"));
  return out;
}

void to_proto(const TrialSpec& value, v1::TrialSpec* out) {
  out->Clear();
  out->set_trial(value.trial.value);
  out->set_attempt(value.attempt);
  out->set_token(value.token);
  out->set_sweep_name(utf8(value.sweep_name));
  out->set_candidate_name(utf8(value.candidate_name));
  out->set_seed(value.seed);
  to_proto(value.architecture, out->mutable_architecture());
  write(value.data, out->mutable_data());
  write(value.train, out->mutable_train());
  write(value.geometry, out->mutable_geometry());
  out->set_device(utf8(value.device));
  out->set_threads(value.threads);
  for (const std::string& folder : value.resume_from) out->add_resume_from(utf8(folder));
}

Result<TrialSpec> from_proto(const v1::TrialSpec& proto) {
  if (!proto.has_architecture()) return refuse("TrialSpec.architecture is missing");
  if (!proto.has_data()) return refuse("TrialSpec.data is missing");
  if (!proto.has_train()) return refuse("TrialSpec.train is missing");
  if (!proto.has_geometry()) return refuse("TrialSpec.geometry is missing");
  TrialSpec out;
  out.trial = TrialId{proto.trial()};
  out.attempt = proto.attempt();
  out.token = proto.token();
  out.sweep_name = proto.sweep_name();
  out.candidate_name = proto.candidate_name();
  out.seed = proto.seed();
  TAILOR_ASSIGN_OR_RETURN(out.architecture, from_proto(proto.architecture()));
  out.data = read(proto.data());
  TAILOR_ASSIGN_OR_RETURN(out.train, read(proto.train()));
  out.geometry = read(proto.geometry());
  out.device = proto.device();
  out.threads = proto.threads();
  out.resume_from.assign(proto.resume_from().begin(), proto.resume_from().end());
  return out;
}

void to_proto(const Report& value, v1::Report* out) {
  out->Clear();
  out->set_sequence(value.sequence);
  out->set_wall_ms(value.wall_ms);
  std::visit([out](const auto& body) { write(body, out); }, value.body);
}

/// As it came, whatever its size.
static Result<Report> read_report(const v1::Report& proto) {
  Report out;
  out.sequence = proto.sequence();
  out.wall_ms = proto.wall_ms();
  switch (proto.body_case()) {
    case v1::Report::kStarted:
      out.body = read(proto.started());
      return out;
    case v1::Report::kMetric:
      out.body = read(proto.metric());
      return out;
    case v1::Report::kCheckpoint:
      out.body = read(proto.checkpoint());
      return out;
    case v1::Report::kProfile:
      out.body = read(proto.profile());
      return out;
    case v1::Report::kEnd: {
      TAILOR_ASSIGN_OR_RETURN(out.body, read(proto.end()));
      return out;
    }
    case v1::Report::BODY_NOT_SET:
      break;
  }
  return refuse("Report {} has no body that this version knows", proto.sequence());
}

Result<Report> from_proto(const v1::Report& proto) {
  TAILOR_ASSIGN_OR_RETURN(Report out, read_report(proto));
  cut_texts(out);
  return out;
}

void to_proto(const WorkerMessage& value, v1::WorkerMessage* out) {
  out->Clear();
  std::visit([out](const auto& body) { write(body, out); }, value);
}

static Result<WorkerMessage> read_message(const v1::WorkerMessage& proto) {
  switch (proto.body_case()) {
    case v1::WorkerMessage::kHello:
      return read(proto.hello());
    case v1::WorkerMessage::kHeartbeat:
      return read(proto.heartbeat());
    case v1::WorkerMessage::kReports:
      return read(proto.reports());
    case v1::WorkerMessage::kLog:
      return read(proto.log());
    case v1::WorkerMessage::kDraining:
      return WorkerMessage(Draining{proto.draining().reason()});
    case v1::WorkerMessage::kRefused:
      return read(proto.refused());
    case v1::WorkerMessage::kMemberEnded:
      return read(proto.member_ended());
    case v1::WorkerMessage::kRendezvous: {
      TAILOR_ASSIGN_OR_RETURN(Rendezvous out, read(proto.rendezvous()));
      return WorkerMessage(std::move(out));
    }
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
  return refuse("WorkerMessage has no body");
}

bool is_of_another_version(const v1::WorkerMessage& proto) {
  return proto.body_case() == v1::WorkerMessage::BODY_NOT_SET &&
         !proto.GetReflection()->GetUnknownFields(proto).empty();
}

Result<WorkerMessage> from_proto(const v1::WorkerMessage& proto) {
  TAILOR_ASSIGN_OR_RETURN(WorkerMessage out, read_message(proto));
  cut_texts(out);
  TAILOR_RETURN_IF_ERROR(check_message(out));
  return out;
}

void to_proto(const CoordinatorMessage& value, v1::CoordinatorMessage* out) {
  out->Clear();
  std::visit([out](const auto& body) { write(body, out); }, value);
}

static Result<CoordinatorMessage> read_message(const v1::CoordinatorMessage& proto) {
  switch (proto.body_case()) {
    case v1::CoordinatorMessage::kWelcome:
      return read(proto.welcome());
    case v1::CoordinatorMessage::kAssign:
      return read(proto.assign());
    case v1::CoordinatorMessage::kHeartbeatAck:
      return CoordinatorMessage(HeartbeatAck{proto.heartbeat_ack().serial()});
    case v1::CoordinatorMessage::kReportsAck:
      return read(proto.reports_ack());
    case v1::CoordinatorMessage::kLogAck:
      return read(proto.log_ack());
    case v1::CoordinatorMessage::kStop:
      return read(proto.stop());
    case v1::CoordinatorMessage::kDrain:
      return CoordinatorMessage(Drain{});
    case v1::CoordinatorMessage::kRendezvous: {
      TAILOR_ASSIGN_OR_RETURN(Rendezvous out, read(proto.rendezvous()));
      return CoordinatorMessage(std::move(out));
    }
    case v1::CoordinatorMessage::BODY_NOT_SET:
      break;
  }
  return refuse("CoordinatorMessage has no body");
}

Result<CoordinatorMessage> from_proto(const v1::CoordinatorMessage& proto) {
  TAILOR_ASSIGN_OR_RETURN(CoordinatorMessage out, read_message(proto));
  cut_texts(out);
  TAILOR_RETURN_IF_ERROR(check_message(out));
  return out;
}

std::string to_json(const TrialSpec& spec) {
  v1::TrialSpec proto;
  to_proto(spec, &proto);
  std::string text = print_json(proto, /*indented=*/true);
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

Result<TrialSpec> trial_spec_from_json(std::string_view text) {
  TAILOR_RETURN_IF_ERROR(check_keys(text));
  v1::TrialSpec given;
  TAILOR_RETURN_IF_ERROR(parse_message(text, &given));
  TAILOR_RETURN_IF_ERROR(check_warmup(given));
  TAILOR_RETURN_IF_ERROR(check_required(given));
  return from_proto(with_defaults(given));
}

std::string to_json_line(const Report& report) {
  v1::Report proto;
  to_proto(report, &proto);
  return print_json(proto, /*indented=*/false);
}

Result<Report> report_from_json(std::string_view line) {
  v1::Report proto;
  TAILOR_RETURN_IF_ERROR(parse_message(line, &proto));
  TAILOR_ASSIGN_OR_RETURN(Report report, from_proto(proto));
  TAILOR_RETURN_IF_ERROR(check_report(report));
  return report;
}

}  // namespace tailor::protocol
