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
//  - Trainers outlive streams: only Stop, a verdict, a forced drain or `offline_limit` ends them,
//    with SIGTERM and, after `stop_grace`, SIGKILL.
//  - An Assign that is already held, was held, or comes while draining is ignored. One for a slot
//    that is being vacated waits for it; one for a slot in full use, or for a slot that does not
//    exist, is logged and ignored: its lease runs out at the coordinator, which then
//    places it anew.
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
