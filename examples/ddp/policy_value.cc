// Learns tic-tac-toe from games against itself, as programs for reinforcement learning do: on each rank, threads play
// games with the newest weights and append them to a replay buffer, and a learner samples from it. A move is searched
// by the values of the boards that follow; the policy learns the result of the search, and the value that of the game.
// The learners of all ranks train one network. docs/guides/ddp.md explains it.
//
//   policy_value STEPS
#include <oarlock/ddp.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

constexpr int kActors = 2;            // threads per rank
constexpr size_t kCapacity = 2000;    // moves in the replay buffer
constexpr int64_t kBatch = 128;       // moves per rank and step
constexpr size_t kFreshPerStep = 64;  // new moves that a step waits for
constexpr float kTemperature = 0.2F;  // of the search
constexpr size_t kGamesOfEvaluation = 200;

// A board from the view of the player whose turn it is: 1 are its own marks, -1 those of the other player.
using Board = std::array<float, 9>;
using Random = std::mt19937_64;

struct NetImpl : torch::nn::Module {
  // Boards [n, 9] -> log-probabilities of the moves [n, 9], and the expected result of the player [n].
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& boards) {
    const torch::Tensor marks = torch::cat({boards.eq(1), boards.eq(-1)}, 1).to(torch::kFloat);
    const torch::Tensor hidden = torch::relu(body(marks));
    const torch::Tensor logits = policy(hidden).masked_fill(boards.ne(0), -1e9);
    return {torch::log_softmax(logits, 1), torch::tanh(value(hidden)).squeeze(1)};
  }
  torch::nn::Linear body = register_module("body", torch::nn::Linear(18, 96));
  torch::nn::Linear policy = register_module("policy", torch::nn::Linear(96, 9));
  torch::nn::Linear value = register_module("value", torch::nn::Linear(96, 1));
};
TORCH_MODULE(Net);

// The newest weights. Actors read the copy that they have taken, while the learner trains.
class Weights {
 public:
  void publish(Net& net) {
    const torch::NoGradGuard no_grad;
    Net copy;
    for (size_t i = 0; i < net->parameters().size(); ++i) copy->parameters()[i].copy_(net->parameters()[i]);
    const std::lock_guard lock(mutex_);
    newest_ = copy.ptr();
  }
  std::shared_ptr<NetImpl> newest() {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<NetImpl> newest_;
};

using Chances = std::array<float, 9>;  // of the squares; their sum is 1

struct Move {
  Board board;
  Chances chances;
  float result;  // of the game, for the player of this move: 1, 0 or -1
};

class ReplayBuffer {
 public:
  void append(const std::vector<Move>& game) {
    const std::lock_guard lock(mutex_);
    for (const Move& move : game) {
      if (moves_.size() < kCapacity) moves_.emplace_back();
      moves_[next_++ % kCapacity] = move;
    }
    fresh_ += game.size();
    changed_.notify_one();
  }
  // Returns boards [n, 9], chances [n, 9] and results [n] of random moves, when enough new ones have arrived.
  std::array<torch::Tensor, 3> sample(Random& random) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fresh_ >= kFreshPerStep; });
    fresh_ = 0;
    const torch::Tensor boards = torch::empty({kBatch, 9});
    const torch::Tensor chances = torch::empty({kBatch, 9});
    const torch::Tensor results = torch::empty({kBatch});
    for (int64_t i = 0; i < kBatch; ++i) {
      const Move& move = moves_[random() % moves_.size()];
      std::copy(move.board.begin(), move.board.end(), boards.data_ptr<float>() + 9 * i);
      std::copy(move.chances.begin(), move.chances.end(), chances.data_ptr<float>() + 9 * i);
      results.data_ptr<float>()[i] = move.result;
    }
    return {boards, chances, results};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Move> moves_;
  size_t next_ = 0;
  size_t fresh_ = 0;  // moves since the last sample
};

bool has_line(const Board& board, float mark) {
  static constexpr int kLines[8][3] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6},
                                       {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}};
  for (const auto& line : kLines) {
    if (board[line[0]] == mark && board[line[1]] == mark && board[line[2]] == mark) return true;
  }
  return false;
}

Board after(Board board, size_t square) {
  board[square] = 1;
  for (float& mark : board) mark = -mark;
  return board;
}

// Returns the chances of a player's moves.
using Player = std::function<Chances(const Board&)>;

// Plays a game. The first player makes the moves 0, 2, 4, ...
std::vector<Move> play(const std::array<Player, 2>& players, Random& random) {
  std::vector<Move> game;
  Board board{};
  float result = 0;  // of the player of the last move
  while (result == 0 && game.size() < 9) {
    const Chances chances = players[game.size() % 2](board);
    game.push_back({board, chances, 0});
    board = after(board, std::discrete_distribution<size_t>(chances.begin(), chances.end())(random));
    if (has_line(board, -1)) result = 1;
  }
  for (size_t i = game.size(); i-- > 0; result = -result) game[i].result = result;
  return game;
}

// Prefers moves whose board has a low value for the other player.
Chances search(NetImpl& net, const Board& board) {
  const torch::NoGradGuard no_grad;
  std::array<Board, 9> boards{};
  for (size_t square = 0; square < 9; ++square) boards[square] = after(board, square);
  const torch::Tensor values = -std::get<1>(net.forward(torch::from_blob(boards.data(), {9, 9})));
  Chances out{};
  float sum = 0;
  for (size_t square = 0; square < 9; ++square) {
    if (board[square] != 0) continue;
    const float value = has_line(boards[square], -1) ? 1 : values.data_ptr<float>()[square];
    sum += out[square] = std::exp(value / kTemperature);
  }
  for (float& chance : out) chance /= sum;
  return out;
}

void act(const std::stop_token& stop, Weights& weights, ReplayBuffer& buffer, uint64_t seed) {
  Random random(seed);
  while (!stop.stop_requested()) {
    const std::shared_ptr<NetImpl> net = weights.newest();
    const Player player = [&](const Board& board) { return search(*net, board); };
    buffer.append(play({player, player}, random));
  }
}

// Returns the mean result of the policy's best moves against random ones, over games of all ranks.
double score_against_random(NetImpl& net, const oarlock::ProcessGroup& group) {
  Random random(static_cast<uint64_t>(group.rank()));
  const Player best = [&](Board board) {
    const torch::NoGradGuard no_grad;
    Chances out{};
    const torch::Tensor moves = std::get<0>(net.forward(torch::from_blob(board.data(), {1, 9})));
    out[static_cast<size_t>(moves.argmax().item<int64_t>())] = 1;
    return out;
  };
  const Player any = [](const Board& board) {
    Chances out{};
    for (size_t square = 0; square < 9; ++square) out[square] = board[square] == 0 ? 1 : 0;
    return out;
  };
  std::array<double, 2> sums{};  // results, games
  for (size_t i = 0; i < kGamesOfEvaluation; ++i) {
    const auto game = play(i % 2 == 0 ? std::array{best, any} : std::array{any, best}, random);
    sums[0] += game[i % 2].result;
    ++sums[1];
  }
  group.all_reduce_sum(sums);
  return sums[0] / sums[1];
}

void train(int steps) {
  const oarlock::DistributedContext ranks = oarlock::init_process_group();
  const oarlock::ProcessGroup& group = ranks.group;
  torch::manual_seed(1);
  Net net;
  oarlock::DistributedDataParallel model(net, group);
  torch::optim::Adam optimizer(net->parameters(), 0.003);
  const double before = score_against_random(*net, group);
  Weights weights;
  weights.publish(net);
  ReplayBuffer buffer;
  std::vector<std::jthread> actors;  // their destructors stop and join them
  for (int i = 0; i < kActors; ++i) {
    actors.emplace_back([&, seed = static_cast<uint64_t>(group.rank() * kActors + i)](const std::stop_token& stop) {
      act(stop, weights, buffer, seed);
    });
  }
  Random random(static_cast<uint64_t>(1000 + group.rank()));
  for (int step = 0; step < steps; ++step) {
    const auto [boards, chances, results] = buffer.sample(random);
    const auto [moves, values] = model.forward(boards);
    optimizer.zero_grad();
    ((results - values).pow(2).mean() - (chances * moves).sum(1).mean()).backward();
    optimizer.step();
    weights.publish(net);
  }
  actors.clear();
  const double after = score_against_random(*net, group);
  if (group.rank() == 0) std::printf("ranks %d, score before %.3f, after %.3f\n", group.world_size(), before, after);
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? std::stoi(argv[1]) : 600);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
