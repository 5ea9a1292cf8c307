// A block of 512 threads on the CPU, for the part of moe_decode.cu that chooses experts and groups pairs.
// KERNEL names that part, cut out of the source. In: tokens, experts here, first one's number, factor, logits,
// correction. Out: number of groups; expert and weight of each pair; then each group: expert, pairs, columns.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

using std::max;
using std::min;

struct Index {
  int x;
};
static thread_local Index threadIdx;

struct Warp {
  std::barrier<> met{32};
  unsigned said[32];
};
static Warp warps[16];
static std::barrier<> block(512);
static std::atomic<bool> any;

// What every lane of the warp says.
static const unsigned* heard(unsigned v) {
  static thread_local unsigned all[32];
  Warp& warp = warps[threadIdx.x / 32];
  warp.said[threadIdx.x % 32] = v;
  warp.met.arrive_and_wait();
  std::memcpy(all, warp.said, sizeof all);
  warp.met.arrive_and_wait();
  return all;
}
static float __uint_as_float(unsigned v) {
  float f;
  std::memcpy(&f, &v, 4);
  return f;
}
static unsigned __float_as_uint(float f) {
  unsigned v;
  std::memcpy(&v, &f, 4);
  return v;
}
static float __int_as_float(int v) { return __uint_as_float(v); }
static float __shfl_sync(unsigned, float v, int from) { return __uint_as_float(heard(__float_as_uint(v))[from]); }
static float __shfl_xor_sync(unsigned, float v, int mask) { return __shfl_sync(0, v, threadIdx.x % 32 ^ mask); }
static unsigned __reduce_max_sync(unsigned, unsigned v) {
  const unsigned* all = heard(v);
  return *std::max_element(all, all + 32);
}
static unsigned __match_any_sync(unsigned, int v) {
  const unsigned* all = heard(v);
  unsigned same = 0;
  for (int i = 0; i < 32; i++) same |= unsigned(all[i] == unsigned(v)) << i;
  return same;
}
static unsigned __ballot_sync(unsigned, bool v) {
  const unsigned* all = heard(v);
  unsigned votes = 0;
  for (int i = 0; i < 32; i++) votes |= all[i] << i;
  return votes;
}
static void __syncwarp() { heard(0); }
static void __syncthreads() { block.arrive_and_wait(); }
static bool __syncthreads_or(bool v) {
  block.arrive_and_wait();
  any = false;
  block.arrive_and_wait();
  if (v) any = true;
  block.arrive_and_wait();
  return any;
}
static int __popc(unsigned v) { return __builtin_popcount(v); }
static int __ffs(unsigned v) { return __builtin_ffs(v); }
static void atomicMin(int* at, int v) {
  std::atomic_ref<int> held(*at);
  for (int now = held; v < now && !held.compare_exchange_weak(now, v);) {}
}

#include KERNEL

static void run(Shared& s, int tid, int tokens, int experts, int first, float factor, const float* logits,
                const float* correction, int* groups) {
  threadIdx.x = tid;
  const int lane = tid % 32, warp = tid / 32, pairs = tokens * TOPK;
  float logit[PER], bias[PER];
  for (int j = 0; j < PER; j++) {
    const int e = lane * PER + j;
    logit[j] = e < ROUTED && warp < tokens ? logits[warp * ROUTED + e] : -INFINITY;
    bias[j] = BIAS && e < ROUTED ? correction[e] : 0.f;
  }
  if (warp < tokens) route(logit, bias, factor, first, s.chosen + warp * TOPK, s.weight + warp * TOPK);
  __syncthreads();
  const int id = tid < pairs || (FEW && lane < pairs) ? s.chosen[FEW ? lane : tid] : -1;
  const int base = groups_of_shared(tokens);
  if (tid < 32 || !FEW)
    for (int i = tid; i < PAIRS * COLUMNS; i += FEW ? 32 : 512) s.column[i] = NONE;
  for (int i = lane; i < base; i += 32) s.expert[FEW ? warp : 0][i] = experts + i % SHARED1;
  if (!FEW)
    for (int i = tid; i < experts; i += 512) s.grouping.first[i] = CHOSEN;
  if (!FEW)
    for (int i = tid; i < 8 * CHOSEN; i += 512) s.grouping.hits[i / CHOSEN][i % CHOSEN] = 0;
  __syncthreads();
  if (tid < 32) enlist_shared(s, tokens, tid, 32);
  groups[tid] = FEW ? group_few(s, id, experts, base) : group_many(s, id, experts, base);
}

int main() {
  int tokens, experts, first;
  float factor;
  if (std::scanf("%d %d %d %f", &tokens, &experts, &first, &factor) != 4) return 1;
  std::vector<float> logits(tokens * ROUTED), correction(ROUTED);
  for (auto* list : {&logits, &correction})
    for (float& v : *list)
      if (std::scanf("%f", &v) != 1) return 1;
  const auto s = std::make_unique<Shared>();
  std::memset(static_cast<void*>(s.get()), 0x77, sizeof(Shared));
  std::vector<int> groups(512);
  std::vector<std::thread> threads;
  for (int t = 0; t < 512; t++)
    threads.emplace_back(run, std::ref(*s), t, tokens, experts, first, factor, logits.data(), correction.data(), groups.data());
  for (auto& thread : threads) thread.join();
  for (int count : groups)
    if (count != groups[0]) return 2;
  std::printf("%d\n", groups[0]);
  for (int i = 0; i < tokens * TOPK; i++) std::printf("%d %.9g\n", s->chosen[i], s->weight[i]);
  for (int g = 0; g < groups[0]; g++) {
    std::printf("%d", s->expert[FEW ? 15 : 0][g]);
    for (int i = 0; i < s->count[g]; i++) std::printf(" %d", s->pair[g * 8 + i]);
    std::printf(";");
    for (int i = 0; i < COLUMNS; i++) std::printf(" %d", s->column[g * COLUMNS + i]);
    std::printf("\n");
  }
}
