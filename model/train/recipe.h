// What the recipe says of single tensors: how large they are at the start, how fast they learn.
//
// lr_mode fixed: every matrix starts as N(0, init_std), every gain as 1, and all learn at `lr`.
//
// lr_mode mup (maximal update parametrisation, arXiv 2203.03466, for Adam): b = mup_base_width,
//
//   hidden matrix of fan-in f    N(0, init_std sqrt(b/f)),  rate lr b/f
//   embedding, head              N(0, init_std),            rate lr
//   gains but the last norm's    1,                         rate lr
//   gain of the last norm        b/d,                       rate lr b/d
//
// The paper divides the scores by the width; the last norm's gain does just that (Adam's steps do
// not depend on the gradient's size), for tied and untied heads alike, so that the trained network
// is an ordinary one. The decay a step of every matrix is lr weight_decay, whatever its rate (arXiv
// 2405.13698). Attention divides by sqrt(head_dim): keep head_dim fixed when the width grows.
//
// dn_init fan_in: down projections start as N(0, 1/sqrt(hidden width)) in either mode. Residual
// writes are scaled by 1/sqrt(their number) on top (net::Decoder::initialise).
#pragma once

#include "model/net/parameters.h"
#include "model/shape/architecture.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

/// Standard deviation of a matrix or value of a gain at the start, before residual scaling.
double initial_scale(const net::Part& part, const protocol::TrainSpec& train,
                     const shape::Architecture& architecture);

/// The part's learning rate divided by the schedule's.
double lr_factor(const net::Part& part, const protocol::OptimizerSpec& optimizer,
                 const shape::Architecture& architecture);

}  // namespace tailor::train
