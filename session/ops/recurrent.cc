// RNN, GRU and LSTM: one step after the other, in both directions where asked for.
#include <ATen/ops/elu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

using Activation = std::function<at::Tensor(const at::Tensor&)>;

Activation activation_of(std::string name, double alpha, double beta) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "sigmoid") return [](const at::Tensor& x) { return x.sigmoid(); };
  if (name == "tanh") return [](const at::Tensor& x) { return x.tanh(); };
  if (name == "relu") return [](const at::Tensor& x) { return x.relu(); };
  if (name == "softsign") return [](const at::Tensor& x) { return x.div(x.abs().add(1)); };
  if (name == "softplus") return [](const at::Tensor& x) { return at::softplus(x); };
  if (name == "affine") return [=](const at::Tensor& x) { return x.mul(alpha).add(beta); };
  if (name == "leakyrelu") return [=](const at::Tensor& x) { return at::leaky_relu(x, alpha); };
  if (name == "thresholdedrelu") return [=](const at::Tensor& x) { return x.mul(x.gt(alpha)); };
  if (name == "scaledtanh") return [=](const at::Tensor& x) { return x.mul(beta).tanh().mul(alpha); };
  if (name == "hardsigmoid") return [=](const at::Tensor& x) { return x.mul(alpha).add(beta).clamp(0, 1); };
  TORCH_CHECK_NOT_IMPLEMENTED(name == "elu", "activation ", name);
  return [=](const at::Tensor& x) { return at::elu(x, alpha); };
}

// What ONNX takes for alpha and beta where the node gives none.
std::pair<double, double> default_parameters(const std::string& name) {
  if (name == "LeakyRelu") return {0.01, 0};
  if (name == "HardSigmoid") return {0.2, 0.5};
  return {1, name == "ScaledTanh" ? 1 : 0};
}

// What one step needs besides its inputs.
struct Cell {
  at::Tensor w, r, wb, rb, peepholes;  // of one direction: [gates * H, ...]
  std::vector<Activation> activations;
  double clip;  // 0: none
  bool linear_before_reset, input_forget;

  at::Tensor clipped(const at::Tensor& x) const { return clip > 0 ? x.clamp(-clip, clip) : x; }
  at::Tensor apply(std::size_t activation, const at::Tensor& x) const {
    return activations[activation](clipped(x));
  }
};

struct State {
  at::Tensor h, c;
};

using Step = State (*)(const Cell& cell, const at::Tensor& x, const State& state);

State rnn_step(const Cell& cell, const at::Tensor& x, const State& state) {
  return {cell.apply(0, at::linear(x, cell.w, cell.wb).add(at::linear(state.h, cell.r, cell.rb))), {}};
}

// Gates z, r, h.
State gru_step(const Cell& cell, const at::Tensor& x, const State& state) {
  const std::vector<at::Tensor> from_x = at::linear(x, cell.w, cell.wb).chunk(3, -1), w = cell.r.chunk(3, 0),
                                b = cell.rb.chunk(3, 0);
  const at::Tensor z = cell.apply(0, from_x[0].add(at::linear(state.h, w[0], b[0])));
  const at::Tensor reset = cell.apply(0, from_x[1].add(at::linear(state.h, w[1], b[1])));
  const at::Tensor from_h = cell.linear_before_reset ? reset.mul(at::linear(state.h, w[2], b[2]))
                                                     : at::linear(reset.mul(state.h), w[2], b[2]);
  const at::Tensor candidate = cell.apply(1, from_x[2].add(from_h));
  return {z.mul(-1).add(1).mul(candidate).add(z.mul(state.h)), {}};
}

// Gates i, o, f, c; peepholes i, o, f.
State lstm_step(const Cell& cell, const at::Tensor& x, const State& state) {
  const std::vector<at::Tensor> gates =
      at::linear(x, cell.w, cell.wb).add(at::linear(state.h, cell.r, cell.rb)).chunk(4, -1);
  const std::vector<at::Tensor> peep = cell.peepholes.chunk(3, 0);
  const at::Tensor i = cell.apply(0, gates[0].add(peep[0].mul(state.c)));
  const at::Tensor f =
      cell.input_forget ? i.mul(-1).add(1) : cell.apply(0, gates[2].add(peep[2].mul(state.c)));
  const at::Tensor c = f.mul(state.c).add(i.mul(cell.apply(1, gates[3])));
  const at::Tensor o = cell.apply(0, gates[1].add(peep[1].mul(c)));
  return {o.mul(cell.activations[2](c)), c};
}

struct Recurrence {
  Step step;
  std::int64_t gates;
  std::size_t activations;  // per direction
  bool lstm;
};

struct Layer {
  Recurrence recurrence;
  std::vector<Activation> activations;  // of all directions
  std::int64_t directions, hidden;
  bool reverse, batch_first, linear_before_reset, input_forget;
  double clip;
};

at::Tensor input(const Tensors& in, std::size_t i) { return i < in.size() ? in[i] : at::Tensor(); }

Cell cell_of(const Layer& layer, const Tensors& in, std::int64_t direction) {
  const std::int64_t rows = layer.recurrence.gates * layer.hidden;
  const at::Tensor bias =
      input(in, 3).defined() ? in[3].select(0, direction) : at::zeros({2 * rows}, in[0].options());
  const at::Tensor peepholes =
      input(in, 7).defined() ? in[7].select(0, direction) : at::zeros({3 * layer.hidden}, in[0].options());
  const auto first =
      layer.activations.begin() + direction * static_cast<std::ptrdiff_t>(layer.recurrence.activations);
  return {in[1].select(0, direction),
          in[2].select(0, direction),
          bias.narrow(0, 0, rows),
          bias.narrow(0, rows, rows),
          peepholes,
          {first, first + static_cast<std::ptrdiff_t>(layer.recurrence.activations)},
          layer.clip,
          layer.linear_before_reset,
          layer.input_forget};
}

// x: [time, batch, features]. The outputs of all steps, and the last state; beyond a sequence's end outputs
// are zero and the state stays.
std::pair<at::Tensor, State> run_direction(const Layer& layer, const Cell& cell, const at::Tensor& x,
                                           const at::Tensor& lengths, State state, bool backward) {
  Tensors outputs(static_cast<std::size_t>(x.size(0)));
  for (std::int64_t k = 0; k < x.size(0); ++k) {
    const std::int64_t t = backward ? x.size(0) - 1 - k : k;
    State next = layer.recurrence.step(cell, x.select(0, t), state);
    at::Tensor shown = next.h;
    if (lengths.defined()) {
      const at::Tensor inside = lengths.gt(t).unsqueeze(1);
      shown = next.h.mul(inside);
      next.h = at::where(inside, next.h, state.h);
      if (next.c.defined()) next.c = at::where(inside, next.c, state.c);
    }
    outputs[static_cast<std::size_t>(t)] = shown;
    state = std::move(next);
  }
  return {at::stack(outputs), std::move(state)};
}

// Inputs: x, W, R, B?, lengths?, initial h?, initial c?, peepholes?. Outputs: y[time, directions, batch, H],
// last h, last c.
Tensors run_layer(const Layer& layer, const Tensors& in) {
  const at::Tensor x = layer.batch_first ? in[0].transpose(0, 1) : in[0];
  const auto initial = [&](std::size_t i, std::int64_t direction) {
    const at::Tensor given = input(in, i);
    if (!given.defined()) return at::zeros({x.size(1), layer.hidden}, x.options());
    return layer.batch_first ? given.select(1, direction) : given.select(0, direction);
  };
  Tensors ys, hs, cs;
  for (std::int64_t d = 0; d < layer.directions; ++d) {
    const State first{initial(5, d), layer.recurrence.lstm ? initial(6, d) : at::Tensor()};
    auto [y, last] =
        run_direction(layer, cell_of(layer, in, d), x, input(in, 4), first, layer.reverse || d == 1);
    ys.push_back(y);
    hs.push_back(last.h);
    if (layer.recurrence.lstm) cs.push_back(last.c);
  }
  const std::int64_t at = layer.batch_first ? 1 : 0;
  at::Tensor y = at::stack(ys, 1);
  if (layer.batch_first) y = y.permute({2, 0, 1, 3});
  Tensors results{y, at::stack(hs, at)};
  if (layer.recurrence.lstm) results.push_back(at::stack(cs, at));
  return results;
}

std::vector<Activation> activations_of(const graph::Node& node, std::vector<std::string> names,
                                       std::int64_t directions) {
  const auto list = [&](const char* name) {
    const auto* attribute = node.attribute(name);
    return attribute == nullptr ? std::vector<double>() : std::get<std::vector<double>>(*attribute);
  };
  const std::vector<double> alphas = list("activation_alpha"), betas = list("activation_beta");
  const std::vector<std::string> defaults = names;
  for (std::int64_t d = 1; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  if (const auto* given = node.attribute("activations")) {
    const auto& chosen = std::get<std::vector<std::string>>(*given);
    TORCH_CHECK(chosen.size() >= names.size(), "activations has ", chosen.size(), " names for ",
                names.size());
    std::copy_n(chosen.begin(), names.size(), names.begin());
  }
  std::vector<Activation> activations;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto [alpha, beta] = default_parameters(names[i]);
    activations.push_back(
        activation_of(names[i], i < alphas.size() ? alphas[i] : alpha, i < betas.size() ? betas[i] : beta));
  }
  return activations;
}

Lowering recurrent(const LowerContext& context, const Recurrence& recurrence,
                   std::vector<std::string> names) {
  const std::string direction = context.string_attribute("direction", "forward");
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  TORCH_CHECK(directions == 2 || direction == "forward" || direction == "reverse", "direction '", direction,
              "'");
  const Layer layer{recurrence,
                    activations_of(context.node(), std::move(names), directions),
                    directions,
                    context.meta(2).size(-1),
                    direction == "reverse",
                    context.int_attribute("layout", 0) != 0,
                    context.int_attribute("linear_before_reset", 0) != 0,
                    context.int_attribute("input_forget", 0) != 0,
                    context.float_attribute("clip", 0)};
  TORCH_CHECK(context.meta(0).size(layer.batch_first ? 1 : 0) > 0, "a sequence without steps");
  return functional(context, [layer](const Tensors& in) { return run_layer(layer, in); });
}

Lowering lower_rnn(const LowerContext& context) {
  return recurrent(context, {rnn_step, 1, 1, false}, {"Tanh"});
}
Lowering lower_gru(const LowerContext& context) {
  return recurrent(context, {gru_step, 3, 2, false}, {"Sigmoid", "Tanh"});
}
Lowering lower_lstm(const LowerContext& context) {
  return recurrent(context, {lstm_step, 4, 3, true}, {"Sigmoid", "Tanh", "Tanh"});
}

}  // namespace

REKINDLE_OP("", "GRU", lower_gru);
REKINDLE_OP("", "LSTM", lower_lstm);
REKINDLE_OP("", "RNN", lower_rnn);

}  // namespace rekindle::session
