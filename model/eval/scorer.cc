#include "model/eval/scorer.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/eval/unicode.h"

namespace tailor::eval {
namespace {

// Scores of one chunk of rows: 64 MiB of fp32.
constexpr std::int64_t kScoresMax = 1 << 24;

std::span<const std::uint32_t> input_of(const Request& request) {
  return {request.ids.data(), request.ids.size() - 1};
}

/// The request that each request's scores are read off:
/// itself, or one whose input begins with its own.
std::vector<std::size_t> hosts_of(std::span<const Request> requests) {
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto x = input_of(requests[a]);
    const auto y = input_of(requests[b]);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  });
  // In this order an input stands right before one that it begins, if there is one.
  std::vector<std::size_t> hosts(requests.size());
  for (std::size_t i = order.size(); i-- > 0;) {
    hosts[order[i]] = order[i];
    if (i + 1 == order.size()) continue;
    const auto own = input_of(requests[order[i]]);
    const auto next = input_of(requests[order[i + 1]]);
    if (own.size() <= next.size() && std::equal(own.begin(), own.end(), next.begin())) {
      hosts[order[i]] = hosts[order[i + 1]];
    }
  }
  return hosts;
}

/// Requests that share a row of a forward pass.
struct Row {
  std::size_t host = 0;
  std::vector<std::size_t> requests;  // the host's own among them
};

std::vector<Row> rows_of(std::span<const Request> requests) {
  const std::vector<std::size_t> hosts = hosts_of(requests);
  std::vector<Row> rows;
  std::vector<std::size_t> place(requests.size());  // of a host in `rows`
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (hosts[i] != i) continue;
    place[i] = rows.size();
    rows.push_back({i, {}});
  }
  for (std::size_t i = 0; i < requests.size(); ++i) rows[place[hosts[i]]].requests.push_back(i);
  // The longest first: what does not fit into memory fails at once.
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    return requests[a.host].ids.size() > requests[b.host].ids.size();
  });
  return rows;
}

/// One forward pass: fills the scores of all requests of `rows`.
void score_rows(net::Decoder& decoder, std::span<const Request> requests, std::span<const Row> rows,
                std::span<RequestScore> scores) {
  const auto time = static_cast<std::int64_t>(requests[rows[0].host].ids.size()) - 1;
  at::Tensor tokens = at::zeros({static_cast<std::int64_t>(rows.size()), time}, at::kLong);
  std::int64_t* token = tokens.mutable_data_ptr<std::int64_t>();
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> targets;
  for (const Row& row : rows) {
    const std::int64_t first = token - tokens.const_data_ptr<std::int64_t>();
    std::ranges::copy(input_of(requests[row.host]), token);
    token += time;
    for (const std::size_t request : row.requests) {
      const auto& ids = requests[request].ids;
      for (std::size_t i = ids.size() - requests[request].scored; i < ids.size(); ++i) {
        positions.push_back(first + static_cast<std::int64_t>(i) - 1);
        targets.push_back(ids[i]);
      }
    }
  }
  const at::Device device = decoder.device();
  const auto tensor_of = [&](const std::vector<std::int64_t>& values) {
    at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
    std::ranges::copy(values, out.mutable_data_ptr<std::int64_t>());
    return out.to(device);
  };
  const at::Tensor target_n = tensor_of(targets);
  const at::Tensor h_nd = decoder.hidden(tokens.to(device)).index_select(0, tensor_of(positions));
  std::vector<double> log_p;
  std::vector<char> is_best;
  const std::int64_t chunk_max = std::max<std::int64_t>(1, kScoresMax / decoder.form().vocab_size);
  for (std::int64_t begin = 0; begin < h_nd.size(0); begin += chunk_max) {
    const std::int64_t chunk = std::min(chunk_max, h_nd.size(0) - begin);
    const at::Tensor score_nv = decoder.scores(h_nd.narrow(0, begin, chunk));
    const at::Tensor target = target_n.narrow(0, begin, chunk);
    const at::Tensor nats =
        (score_nv.gather(1, target.unsqueeze(1)).squeeze(1) - at::logsumexp(score_nv, {1}))
            .to(at::kDouble)
            .cpu();
    const at::Tensor best = at::argmax(score_nv, 1).eq(target).to(at::kChar).cpu();
    log_p.insert(log_p.end(), nats.const_data_ptr<double>(), nats.const_data_ptr<double>() + chunk);
    is_best.insert(is_best.end(), best.const_data_ptr<std::int8_t>(),
                   best.const_data_ptr<std::int8_t>() + chunk);
  }
  std::size_t next = 0;
  for (const Row& row : rows) {
    for (const std::size_t request : row.requests) {
      scores[request] = {0, true};
      for (std::size_t i = 0; i < requests[request].scored; ++i, ++next) {
        scores[request].loglikelihood += log_p[next];
        scores[request].is_greedy = scores[request].is_greedy && is_best[next] != 0;
      }
    }
  }
}

}  // namespace

Result<std::vector<RequestScore>> score_requests(net::Decoder& decoder,
                                                 std::span<const Request> requests,
                                                 const BatchOptions& options,
                                                 const Progress& progress) {
  const c10::NoGradGuard no_grad;
  const std::vector<Row> rows = rows_of(requests);
  std::vector<RequestScore> scores(requests.size());
  for (std::size_t begin = 0; begin < rows.size();) {
    const auto time = static_cast<std::int64_t>(requests[rows[begin].host].ids.size()) - 1;
    std::int64_t fit = std::max<std::int64_t>(1, options.tokens / time);
    if (options.rows > 0) fit = std::min(fit, options.rows);
    const std::size_t count = std::min(static_cast<std::size_t>(fit), rows.size() - begin);
    score_rows(decoder, requests, std::span(rows).subspan(begin, count), scores);
    begin += count;
    if (progress && !progress(begin, rows.size())) {
      return error(Code::kCancelled, "stopped while evaluating");
    }
  }
  for (const RequestScore& score : scores) {
    if (!std::isfinite(score.loglikelihood)) {
      return error(Code::kOutOfRange,
                   "a log-likelihood is not finite: the model's weights are broken, or its numbers "
                   "too large for this precision (try --dtype f32)");
    }
  }
  return scores;
}

Result<std::vector<ItemResult>> evaluate_items(net::Decoder& decoder,
                                               tokenizers::Tokenizer& tokenizer,
                                               const Encoding& encoding, std::string_view task,
                                               std::span<const Item> items,
                                               const BatchOptions& options,
                                               const Progress& progress) {
  std::vector<Request> requests;
  std::vector<ItemResult> results;
  for (const Item& item : items) {
    ItemResult& result = results.emplace_back();
    result.task = task;
    result.id = item.id;
    result.digest = item.digest();
    result.gold = item.gold;
    for (const std::string& text : item.choices) {
      auto request =
          encode_request(tokenizer, encoding, item.context, std::string(kChoiceDelimiter) + text);
      if (!request) {
        return error(request.error().with_context(
            fmt::format("{}, item \"{}\", choice {}", task, item.id, result.choices.size() + 1)));
      }
      if (result.choices.empty()) result.context_tokens = request->context_ids;
      result.cut_tokens = std::max(result.cut_tokens, request->cut);
      ScoredChoice& choice = result.choices.emplace_back();
      choice.tokens = request->scored;
      choice.characters = code_points(text);
      choice.bytes = text.size();
      requests.push_back(*std::move(request));
    }
  }
  TAILOR_ASSIGN_OR_RETURN(const std::vector<RequestScore> scores,
                          score_requests(decoder, requests, options, progress));
  auto score = scores.begin();
  for (ItemResult& result : results) {
    for (ScoredChoice& choice : result.choices) {
      choice.loglikelihood = score->loglikelihood;
      choice.is_greedy = score->is_greedy;
      ++score;
    }
  }
  return results;
}

}  // namespace tailor::eval
