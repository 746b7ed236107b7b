// step: the worker daemon's decisions, as a pure function.
//
//     effects = step(state, event, now)
//
// No I/O, no clock, no threads; the only randomness is the seeded rng of the state. The loop
// (loop.cc) turns the world into events and effects into the world; tests/simulation does the same
// with a simulated world.
//
// Rules it keeps:
//  - Hello is the first message of every stream and names every attempt still wanted.
//  - Reports are sent in sequence order within a window, again from the last acknowledged one after
//    every Welcome, and kept until acknowledged. An attempt is forgotten when its end is
//    acknowledged.
//  - The EndReport is sent only when the trainer's process is gone, so a slot that the coordinator
//    takes for free is free. A trainer that ended without one gets an end from its exit status,
//    stored before it is sent.
//  - Trainers outlive streams: only Stop, a verdict, a forced drain, `offline_limit`
//    or a limit of its Assign, with SIGTERM and, after `stop_grace`, SIGKILL.
//  - An Assign that is already held, or was held, is ignored. One for a slot that is being vacated
//    waits for it. One that cannot be carried out (draining, unfit node, a slot in full use or none
//    of this worker's, no folder, no process) is answered with Refused at once, and again whenever
//    it is repeated.
//  - A member of a gang that does not run rank 0 starts when it knows where rank 0 listens; it
//    sends no reports, says MemberEnded when its processes are gone, and is forgotten when told so.
//  - A trainer that passes a limit (no news for too long, too long in all) is ended like one that
//    is told to stop; its end has class timeout.
//  - The files of an attempt that do not answer cost that attempt alone: heartbeats stop naming it.
#pragma once

#include "base/clock.h"
#include "worker/agent/effect.h"
#include "worker/agent/event.h"
#include "worker/agent/state.h"

namespace tailor::agent {

/// Applies `event` to `state`. REQUIRES: Start is the first event, `now` never goes back.
Effects step(AgentState& state, const AgentEvent& event, MonotonicMs now);

/// True while the attempt's process may exist.
bool may_live(const AgentAttempt& attempt);

/// Attempts that hold a slot's process now (for logs, tests and the simulation's invariants).
std::size_t live_count(const AgentState& state);

}  // namespace tailor::agent
