// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/bootstrap.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/random.h"

namespace trifold::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

Error environment_error(std::string message, std::string where, std::string hint = {}) {
  return Error{ErrorCode::environment, std::move(message), std::move(where), std::move(hint)};
}

Result<int> integer_of(GetEnv get_env, const char* name) {
  const char* text = get_env(name);
  if (text == nullptr) return environment_error("not set", name);
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > (1 << 24))
    return environment_error(std::string("'") + text + "' is not a rank or count", name);
  return static_cast<int>(value);
}

struct LauncherNames {
  const char *launcher, *rank, *world, *local, *local_world, *job;
};
constexpr LauncherNames kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ""},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_ess_base_jobid"},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_ID"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_JOB_ID"}};

// Rank 0's address and port: what the person or launcher says, else what can be derived.
Result<void> find_address(GetEnv get_env, const LauncherNames& names, Launch& launch) {
  const char* master = get_env("MASTER_ADDR");
  const char* nodes = get_env("SLURM_JOB_NODELIST");
  const char* local_world = get_env(names.local_world);
  const bool one_node = local_world != nullptr && std::atoi(local_world) == launch.world;
  if (master != nullptr)
    launch.address = master;
  else if (launch.launcher == "srun" && nodes != nullptr)
    launch.address = first_host(nodes);
  else if (!one_node)
    return environment_error("several nodes, and no address of rank 0", "MASTER_ADDR",
                             "set MASTER_ADDR to the host of rank 0");
  // torchrun's own store listens on MASTER_PORT, so the next one is ours.
  if (const char* port = get_env("TRIFOLD_PORT")) {
    launch.port = std::atoi(port);
  } else if (const char* master_port = get_env("MASTER_PORT")) {
    launch.port = std::atoi(master_port) + 1;
  } else {
    const char* job = *names.job != '\0' ? get_env(names.job) : nullptr;
    const std::string key = job != nullptr ? job : "trifold";
    launch.port = 20000 + static_cast<int>(fnv1a(key.data(), key.size()) % 12000);
  }
  if (launch.port <= 0 || launch.port > 65535)
    return environment_error("port " + std::to_string(launch.port) + " is out of range",
                             "TRIFOLD_PORT");
  return {};
}

Result<void> send_all(int socket, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::send(socket, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return environment_error(std::strerror(errno), "send to a peer");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

Result<void> receive_all(int socket, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::recv(socket, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return environment_error("a rank went away", "receive from a peer");
    if (n < 0) return environment_error(std::strerror(errno), "receive from a peer");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

struct Hello {
  std::uint32_t magic = 0x74726966;  // "trif"
  std::int32_t rank = 0, world = 0;
};

void set_options(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  timeval patience{600, 0};  // a rank may wait for another's whole point
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

Result<int> listen_on(int port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  if (listener < 0) return environment_error(std::strerror(errno), "socket");
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 512) != 0) {
    const std::string why = std::strerror(errno);
    ::close(listener);
    return environment_error("cannot listen: " + why, "port " + std::to_string(port),
                             "set TRIFOLD_PORT to a free port on every rank");
  }
  return listener;
}

// Accepts until every rank has said hello; strangers are dropped.
Result<void> accept_ranks(int listener, const Launch& launch, double timeout_s,
                          std::vector<int>& sockets) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  int missing = launch.world - 1;
  while (missing > 0) {
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left <= 0)
      return environment_error(std::to_string(missing) + " of " + std::to_string(launch.world) +
                                   " ranks did not connect in time",
                               "port " + std::to_string(launch.port));
    timeval wait{static_cast<time_t>(left), 200000};
    ::setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    const int peer = ::accept(listener, nullptr, nullptr);
    if (peer < 0) continue;
    timeval short_wait{5, 0};
    ::setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &short_wait, sizeof(short_wait));
    Hello hello;
    const bool read = receive_all(peer, &hello, sizeof(hello)).has_value();
    if (!read || hello.magic != Hello{}.magic) {
      ::close(peer);
      continue;
    }
    if (hello.world != launch.world || hello.rank <= 0 || hello.rank >= launch.world ||
        sockets[static_cast<std::size_t>(hello.rank)] >= 0) {
      ::close(peer);
      return environment_error("rank " + std::to_string(hello.rank) + " of " +
                                   std::to_string(hello.world) + " connected to a world of " +
                                   std::to_string(launch.world),
                               "port " + std::to_string(launch.port), "two runs on one port?");
    }
    set_options(peer);
    sockets[static_cast<std::size_t>(hello.rank)] = peer;
    --missing;
  }
  return {};
}

Result<int> dial(const Launch& launch, double timeout_s) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  const std::string where = launch.address + ":" + std::to_string(launch.port);
  std::string why = "timed out";
  while (Clock::now() < deadline) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    const int code =
        ::getaddrinfo(launch.address.c_str(), std::to_string(launch.port).c_str(), &hints, &found);
    if (code != 0) {
      why = ::gai_strerror(code);
    } else {
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      const bool up = socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) == 0;
      if (!up) why = std::strerror(errno);
      ::freeaddrinfo(found);
      if (up) {
        set_options(socket);
        return socket;
      }
      if (socket >= 0) ::close(socket);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return environment_error("cannot reach rank 0: " + why, where);
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::string first_host(const std::string& nodelist) {
  const std::size_t open = nodelist.find_first_of("[,");
  if (open == std::string::npos || nodelist[open] == ',') return nodelist.substr(0, open);
  const std::size_t end = nodelist.find_first_of("-,]", open);
  const std::size_t close = nodelist.find(']', open);
  std::string host = nodelist.substr(0, open) + nodelist.substr(open + 1, end - open - 1);
  if (close != std::string::npos) {
    const std::size_t tail = nodelist.find_first_of("[,", close + 1);
    host += nodelist.substr(close + 1, tail == std::string::npos ? tail : tail - close - 1);
  }
  return host;
}

Result<Launch> read_launch(GetEnv get_env) {
  Launch launch;
  for (const LauncherNames& names : kLaunchers) {
    if (get_env(names.rank) == nullptr || get_env(names.world) == nullptr) continue;
    launch.launcher = names.launcher;
    TRIFOLD_ASSIGN(rank, integer_of(get_env, names.rank));
    TRIFOLD_ASSIGN(world, integer_of(get_env, names.world));
    launch.rank = rank;
    launch.world = world;
    if (rank >= world)
      return environment_error(
          "rank " + std::to_string(rank) + " is outside a world of " + std::to_string(world),
          names.rank);
    if (get_env(names.local) != nullptr) {
      TRIFOLD_ASSIGN(local, integer_of(get_env, names.local));
      launch.local_rank = local;
    }
    if (world == 1) {
      launch.launcher.clear();  // one process: it may drive every GPU
      return launch;
    }
    TRIFOLD_TRY(find_address(get_env, names, launch));
    return launch;
  }
  return launch;
}

Result<Launch> read_launch() {
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

bool ThreadGroup::barrier() {
  const int generation = generation_.load();
  if (arrived_.fetch_add(1) + 1 == world_) {
    arrived_.store(0);
    generation_.fetch_add(1);
    return !aborted();
  }
  for (int spins = 0; generation_.load() == generation; ++spins) {
    if (aborted()) return false;
    if (spins > 20000) std::this_thread::yield();
  }
  return !aborted();
}

Control::Control(ThreadGroup* group, int rank)
    : rank_(rank), world_(group->world()), group_(group) {}

Control::Control(Control&& other) noexcept { *this = std::move(other); }

Control& Control::operator=(Control&& other) noexcept {
  std::swap(rank_, other.rank_);
  std::swap(world_, other.world_);
  std::swap(group_, other.group_);
  sockets_.swap(other.sockets_);
  return *this;
}

Control::~Control() {
  for (int socket : sockets_)
    if (socket >= 0) ::close(socket);
}

Result<Control> Control::connect(const Launch& launch, double timeout_s) {
  Control control;
  control.rank_ = launch.rank;
  control.world_ = launch.world;
  if (launch.world == 1) return control;
  if (launch.rank == 0) {
    TRIFOLD_ASSIGN(listener, listen_on(launch.port));
    control.sockets_.assign(static_cast<std::size_t>(launch.world), -1);
    Result<void> accepted = accept_ranks(listener, launch, timeout_s, control.sockets_);
    ::close(listener);
    if (!accepted) return std::move(accepted).error();
  } else {
    TRIFOLD_ASSIGN(socket, dial(launch, timeout_s));
    control.sockets_.push_back(socket);
    Hello hello;
    hello.rank = launch.rank;
    hello.world = launch.world;
    TRIFOLD_TRY(send_all(socket, &hello, sizeof(hello)));
  }
  return control;
}

void Control::abort() {
  if (group_ != nullptr) group_->abort();
  for (int& socket : sockets_) {
    if (socket >= 0) ::close(socket);
    socket = -1;
  }
}

Result<std::vector<std::vector<std::uint8_t>>> Control::all_gather(const void* data,
                                                                   std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  const auto world = static_cast<std::size_t>(world_);
  std::vector<std::vector<std::uint8_t>> all(world);
  all[static_cast<std::size_t>(rank_)].assign(bytes, bytes + size);
  if (world == 1) return all;
  if (group_ != nullptr) {
    group_->slots()[static_cast<std::size_t>(rank_)] = all[static_cast<std::size_t>(rank_)];
    if (!group_->barrier()) return environment_error("another rank failed", "barrier");
    all = group_->slots();
    if (!group_->barrier()) return environment_error("another rank failed", "barrier");
    return all;
  }
  if (rank_ == 0) {
    for (std::size_t r = 1; r < world; ++r) {
      all[r].resize(size);
      TRIFOLD_TRY(receive_all(sockets_[r], all[r].data(), size));
    }
    std::vector<std::uint8_t> packed;
    for (const auto& part : all) packed.insert(packed.end(), part.begin(), part.end());
    for (std::size_t r = 1; r < world; ++r)
      TRIFOLD_TRY(send_all(sockets_[r], packed.data(), packed.size()));
    return all;
  }
  TRIFOLD_TRY(send_all(sockets_[0], data, size));
  for (auto& part : all) {
    part.resize(size);
    TRIFOLD_TRY(receive_all(sockets_[0], part.data(), size));
  }
  return all;
}

Result<void> Control::barrier() {
  const std::uint8_t nothing = 0;
  TRIFOLD_TRY(all_gather(&nothing, 1));
  return {};
}

Result<double> Control::max(double value) {
  if (world_ == 1) return value;
  TRIFOLD_ASSIGN(all, all_gather(&value, sizeof(value)));
  double top = value;
  for (const auto& part : all) {
    double other = 0;
    std::memcpy(&other, part.data(), sizeof(other));
    top = std::max(top, other);
  }
  return top;
}

Result<bool> Control::all(bool value) {
  TRIFOLD_ASSIGN(worst, max(value ? 0.0 : 1.0));
  return worst == 0.0;
}

Result<void> Control::broadcast(std::vector<std::uint8_t>& data) {
  if (world_ == 1) return {};
  const std::uint64_t mine = data.size();
  TRIFOLD_ASSIGN(sizes, all_gather(&mine, sizeof(mine)));
  std::uint64_t size = 0;
  std::memcpy(&size, sizes[0].data(), sizeof(size));
  data.resize(size);
  TRIFOLD_ASSIGN(all, all_gather(data.data(), data.size()));
  data = all[0];
  return {};
}

Result<Summary> rehearse_bootstrap() {
  TRIFOLD_ASSIGN(launch, read_launch());
  TRIFOLD_ASSIGN(control, Control::connect(launch, 30));
  std::vector<std::uint8_t> id;
  if (launch.rank == 0) {
    Random random(static_cast<std::uint64_t>(::getpid()));
    for (int i = 0; i < 128; ++i) id.push_back(static_cast<std::uint8_t>(random.below(256)));
  }
  TRIFOLD_TRY(control.broadcast(id));
  const std::uint64_t hash = fnv1a(id.data(), id.size());
  TRIFOLD_ASSIGN(hashes, control.all_gather(&hash, sizeof(hash)));
  for (const auto& part : hashes)
    if (std::memcmp(part.data(), &hash, sizeof(hash)) != 0)
      return Error{ErrorCode::internal, "ranks hold different ids", "bootstrap", ""};
  TRIFOLD_ASSIGN(top, control.max(launch.rank));
  TRIFOLD_TRY(control.barrier());
  Summary summary;
  summary.rank = launch.rank;
  summary.ranks = launch.world;
  summary.lines.push_back("rank " + std::to_string(launch.rank) + " of " +
                          std::to_string(launch.world) + " by " +
                          (launch.launcher.empty() ? "no launcher" : launch.launcher) +
                          ": id agreed, highest rank " + std::to_string(static_cast<int>(top)));
  return summary;
}

}  // namespace trifold::calibrate
