// One persistent kernel for a routed-expert layer with NVFP4 weights and a few tokens.
// README.md beside this file: the layout, the phases, why they are so, and what was tried.
//
// Compile-time parameters (build.py sets them):
//   HIDDEN, INTER     widths, multiples of 64       TOPK    experts a token
//   MAX_M             most tokens a launch takes    GRID    CTAs, all resident at once
//   PIECE             k64 blocks a gate/up copy     ITEMS   down items a ring slot
//   DEPTH   ring slots a warp                     TEAM    warps that share a gate/up tile
//   DOWN_WARPS   warps that take down items from the start, while the others make h
//   SHARED       experts after the routed ones that every token goes to, with weight 1
//   ROUTER       0: experts and weights come in; 1: logits do, and softmax makes scores; 2: sigmoid.  With it:
//   ROUTED       experts that logits are of         BIAS          a correction takes part in choosing
//   GROUPS       of them, of which a token may use  TOP_GROUPS    RENORMALISE  weights are divided by their sum
//   STREAM_BYTES, STATIC_BYTES                        shared memory as the plan counted it; checked here
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEV __device__ __forceinline__

constexpr int WARPS = 16;
constexpr int BLOCK = 576;                                  // 16 rows x 64 k: 512 B of codes, 64 B of scales
constexpr int K_BLOCKS = HIDDEN / 64, I_BLOCKS = INTER / 64;
constexpr int GATE_WARPS = WARPS - DOWN_WARPS;              // the rest take down items from the start
constexpr int TEAMS = GATE_WARPS / TEAM;
constexpr int WARP_BLOCKS = (K_BLOCKS + TEAM - 1) / TEAM;   // a warp's share of a gate/up tile
constexpr int ROW_TILES = HIDDEN / 16;                      // 16-row tiles of the output
constexpr int PAIR_TILES = INTER / 16;                      // 16-row (gate, up) tiles of an expert
constexpr int RUN = I_BLOCKS % 2 ? 1 : 2;                   // k64 blocks of a row tile that lie together in w2
constexpr int CTA_ROWS = (ROW_TILES + GRID - 1) / GRID;     // output tiles a CTA owns, at most
constexpr int GROUP = MAX_M < 8 ? MAX_M : 8;                // tokens of an expert in one pass
constexpr int CHOSEN = MAX_M * TOPK;                        // pairs with a routed expert
constexpr int PAIRS = CHOSEN + MAX_M * SHARED;              // pairs with a shared one come after them
constexpr int N_TILES = (MAX_M + 7) / 8;                    // of the down product, whose columns are tokens
constexpr int SLOT_A = PIECE * 2 * BLOCK, SLOT_B = ITEMS * CTA_ROWS * BLOCK;
constexpr int SLOT = SLOT_A > SLOT_B ? SLOT_A : SLOT_B;
constexpr int RING = WARPS * DEPTH * SLOT;
constexpr int SUM_STRIDE = CTA_ROWS * 16 + 4;               // words between two columns of the final sum
constexpr int SUM_BYTES = WARPS * N_TILES * 8 * SUM_STRIDE * 4;
constexpr int CHUNK = CTA_ROWS <= 3 ? CTA_ROWS : CTA_ROWS % 3 == 0 ? 3 : CTA_ROWS % 2 == 0 ? 2 : 1;  // down tiles decoded at a time
constexpr int AHEAD = N_TILES == 1 && ITEMS > 1 ? 2 : 1;    // down items whose h is on its way
constexpr int GROUPERS = (CHOSEN + 31) / 32;                // warps with a routed pair a lane
constexpr int LISTERS = (PAIRS + 31) / 32;                  // warps with a pair a lane
constexpr bool FEW = CHOSEN <= 32;                          // each warp can group the pairs by itself
constexpr int MAX_EXPERTS = 1024;
constexpr int COLUMNS = N_TILES * 8;
constexpr int SHARED1 = SHARED ? SHARED : 1;
constexpr u32 NONE = 255;
constexpr u32 NOT_YET = 0xFFFFFFFFu;                        // two bf16 NaNs that no conversion produces
#ifndef NAP  // nanoseconds; so that it may be measured
#define NAP 100
#endif
constexpr float DECODE_SCALE = 16384.f;                     // decoded weights are value * 2^-14

static_assert(HIDDEN % 64 == 0 && INTER % 64 == 0, "widths are multiples of 64");
static_assert(PAIRS < 255 && (MAX_M > 1 || FEW), "pairs are numbered by a byte, one token's by a lane");
static_assert(ITEMS == 1 || ITEMS % 2 == 0, "h of two items is under way in turn");
static_assert(GATE_WARPS % TEAM == 0, "teams are whole");
static_assert(DEPTH > 1, "a warp looks one slot ahead");
static_assert(MAX_M <= 16, "an expert has two groups at most");

struct Grouping {                        // while many pairs are grouped
  int first[FEW ? 1 : MAX_EXPERTS];      // first pair of each expert
  u32 leaders[8], crowded[8];
  u8 hits[8][FEW ? 1 : CHOSEN];          // pairs of an expert (under its first pair) in each warp
};
struct Shared {
  union {
    float partial[WARPS * GROUP * 32];   // gate/up sums of the warps: [warp][token][16 gate rows, 16 up rows]
    Grouping grouping;
  };
  u64 full[WARPS * DEPTH];               // ring slots have landed
  u64 sums_full[TEAMS], sums_empty[TEAMS], tables;
  u32 epoch, claims;                     // claims: slots of down items that warps have taken
  int claimed[WARPS * DEPTH];            // first item of a ring slot
  float gate_scale[PAIRS], up_scale[PAIRS], out_scale[PAIRS];
#if ROUTER
  int chosen[CHOSEN];                    // expert and weight of each pair
  float weight[CHOSEN];
#endif
  u16 expert[FEW ? WARPS : 1][PAIRS];    // of each group; a list a warp where each warp makes its own
  u8 count[PAIRS], pair[PAIRS * 8];      // of each group
  u8 column[PAIRS * COLUMNS];            // the pair that a (group, token) is, or NONE
};
static_assert(STREAM_BYTES == (RING > SUM_BYTES ? RING : SUM_BYTES), "the final sum reuses the ring");
static_assert(sizeof(Shared) <= STATIC_BYTES, "the plan leaves room for the rest");

DEV u32 smem_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEV void bar_init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
DEV void bar_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEV void bar_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
DEV void bar_wait(u32 bar, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
DEV void bulk_copy(u32 dst, const u8* src, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
               "r"(bytes), "r"(bar)
               : "memory");
}
// An address the compiler keeps in a register: it would otherwise compute it anew wherever it is used.
DEV u32 kept(u32 v) {
  asm volatile("" : "+r"(v));
  return v;
}
DEV uint4 ring128(u32 addr) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(addr));
  return v;
}
DEV u32 ring32(u32 addr) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(addr));
  return v;
}
DEV u32 ring16(u32 addr) {
  u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(addr));
  return v;
}
// Inputs: volatile, so that they stay before the copies and do not queue behind them; not through the read-only path,
// which wants data that nobody writes from the start of the kernel on, and this one may start before its inputs are there.
DEV uint4 load_input(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
DEV u32 load_input(const void* p) {
  u32 v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
DEV u32 load_half(const u16* p) {
  u16 v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
DEV float load_factor(const float* p) { return __uint_as_float(load_input(p)); }
// The compiler keeps what all lanes agree on in uniform registers, which is where bulk copies take operands from.
DEV int uniform(int v) { return __shfl_sync(~0u, v, 0); }
DEV uint4 load_exchange(const u32* p) {  // four words that another CTA writes, perhaps not yet
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
DEV void store_word(u32* p, u32 v) { asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEV u32 mul2(u32 a, u32 b) {
  u32 d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
DEV u32 pack_bf16(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// One lane, and the compiler knows that it is one: it would otherwise put a loop over lanes around each bulk copy.
DEV bool elected() {
  u32 yes;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(yes));
  return yes;
}
DEV void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two E4M3 scales (rows g and g + 8 of this lane) as bf16, one register a row, times 2^112.
// E4M3 -> fp16 is exact; fp16 bits shifted right by three are bf16 bits of the value times 2^-112.
// Nothing crosses from the upper half to the lower: seven mantissa bits are zero, and no scale is negative or NaN.
DEV void scales_of(u32 bytes, u32& row0, u32& row8) {
  u32 h;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"((u16)bytes));
  h = mul2(mul2(h >> 3, 0x77807780u), 0x77807780u);
  row0 = __byte_perm(h, h, 0x1010);
  row8 = __byte_perm(h, h, 0x3232);
}

// Eight E2M1 codes -> the A operand of one mma: four shifts and four three-input operations.
// A code's bits land at 15 (sign) and 8..6, which as bf16 is the value times 2^-126; the product with
// the scale is exact, because both have few significant bits.
DEV void decode(u32 q, u32 s0, u32 s8, u32 (&a)[4]) {
  const u32 bits = 0x81C081C0u;
  const u32 q2 = q << 2, q6 = q << 6;
  const u32 q8 = __funnelshift_l(q, q, 8), q12 = __funnelshift_l(q, q, 12);
  a[0] = mul2(q & bits, s0);
  a[1] = mul2(q12 & bits, s8);
  a[2] = mul2((q2 ^ q6) & bits, s0);
  a[3] = mul2((q2 ^ q8) & bits, s8);
}

// 16 rows x 64 k against one fragment of activations; lane (g, t) holds k 16t .. 16t + 15 of rows g and g + 8.
// R blocks of rows against N fragments of activations; the chains of sums take turns.
template <int R, int N>
DEV void multiply(const u32 (&a)[R][4][4], const u32 (&b)[N][8], float (&c)[R][N][4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int n = 0; n < N; n++) mma(c[r][n], a[r][i], b[n][2 * i], b[n][2 * i + 1]);
}

// 16 rows x 64 k; lane (g, t) holds k 16t .. 16t + 15 of rows g and g + 8.
DEV void decode_block(uint4 q, u32 scales, u32 (&a)[4][4]) {
  u32 s0, s8;
  scales_of(scales, s0, s8);
  decode(q.x, s0, s8, a[0]);
  decode(q.y, s0, s8, a[1]);
  decode(q.z, s0, s8, a[2]);
  decode(q.w, s0, s8, a[3]);
}

// Groups of up to eight pairs that share an expert, numbered alike in every CTA.  Pairs whose expert is not
// here (id outside 0 .. experts - 1) belong to no group.  Returns the number of groups; what the groups hold
// is there for all after the next __syncthreads.
DEV int token_of(int pair) { return SHARED && pair >= CHOSEN ? (pair - CHOSEN) % MAX_M : pair / TOPK; }
DEV void enlist(Shared& s, int pair, int group, int rank, int left) {
  s.pair[group * 8 + (rank & 7)] = (u8)pair;
  s.column[group * COLUMNS + token_of(pair)] = (u8)pair;
  if ((rank & 7) == 0) s.count[group] = (u8)(left < 8 ? left : 8);
}

// A shared expert has all tokens.  Its groups are the first ones, as they are known before any choice is.
DEV int groups_of_shared(int tokens) { return SHARED * (tokens > 8 ? 2 : 1); }
DEV void enlist_shared(Shared& s, int tokens, int worker, int workers) {
  for (int i = worker; i < SHARED * tokens; i += workers) {
    const int number = i / tokens, token = i % tokens;
    enlist(s, CHOSEN + number * MAX_M + token, token / 8 * SHARED + number, token, tokens - token);
  }
}

DEV int group_few(Shared& s, int id, int experts, int base) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 below = (1u << lane) - 1;
  const bool valid = (u32)id < (u32)experts;
  const u32 same = MAX_M == 1 ? 1u << lane : __match_any_sync(~0u, id);
  const int rank = __popc(same & below);
  const u32 leads = __ballot_sync(~0u, valid && (rank & 7) == 0);
  if (valid) {
    u32 rest = same;  // the lane that leads this one's group of eight
    for (int i = rank & ~7; i > 0; i--) rest &= rest - 1;
    const int lead = __ffs(rest) - 1, group = base + __popc(leads & ((1u << lead) - 1));
    if (lead == lane) s.expert[warp][group] = (u16)id;
    if (warp == 0) enlist(s, lane, group, rank, __popc(same) - rank);
  }
  __syncwarp();
  return base + __popc(leads);
}

DEV int group_many(Shared& s, int id, int experts, int base) {
  Grouping& g = s.grouping;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const bool valid = (u32)id < (u32)experts;
  if (valid) atomicMin(&g.first[id], tid);
  const u32 same = __match_any_sync(~0u, id);
  __syncthreads();
  const int lead = valid ? g.first[id] : 0;
  const int rank_here = __popc(same & ((1u << lane) - 1));
  if (warp < GROUPERS) {
    if (valid && rank_here == 0) g.hits[warp][lead] = (u8)__popc(same);
    const u32 leads = __ballot_sync(~0u, valid && lead == tid);
    if (lane == 0) g.leaders[warp] = leads;
  }
  __syncthreads();
  int groups = base, group = base, rank = rank_here, total = 0;
#pragma unroll
  for (int w = 0; w < GROUPERS; w++) {
    const u32 m = g.leaders[w];
    const int hits = valid ? g.hits[w][lead] : 0;
    groups += __popc(m);
    group += w < lead >> 5 ? __popc(m) : w == lead >> 5 ? __popc(m & ((1u << (lead & 31)) - 1)) : 0;
    rank += w < warp ? hits : 0;
    total += hits;
  }
  if (valid && rank < 8) {
    enlist(s, tid, group, rank, total - rank);
    if (rank == 0) s.expert[0][group] = (u16)id;
  }
  // an expert with more than eight pairs has a second group, after all first ones
  const bool more = valid && lead == tid && total > 8;
  if (__syncthreads_or(more)) {
    const u32 crowded = __ballot_sync(~0u, more);
    if (lane == 0 && warp < GROUPERS) g.crowded[warp] = crowded;
    __syncthreads();
    int second = groups;
#pragma unroll
    for (int w = 0; w < GROUPERS; w++) {
      const u32 m = g.crowded[w];
      groups += __popc(m);
      second += w < lead >> 5 ? __popc(m) : w == lead >> 5 ? __popc(m & ((1u << (lead & 31)) - 1)) : 0;
    }
    if (valid && rank >= 8) {
      enlist(s, tid, second, rank, total - rank);
      if (rank == 8) s.expert[0][second] = (u16)id;
    }
    __syncthreads();
  }
  return groups;
}

#if ROUTER
// ---- the router: one warp a token.  A lane has experts that follow each other, so that of equal scores the lowest
// lane has the lowest number, and a group of experts is a number of whole lanes.
constexpr int GROUP_SIZE = ROUTED / GROUPS;
DEV constexpr int lane_experts() {
  int per = (ROUTED + 31) / 32;
  while (GROUPS > 1 && GROUP_SIZE % per) per++;
  return per;
}
constexpr int PER = lane_experts(), GROUP_LANES = GROUPS > 1 ? GROUP_SIZE / PER : 32;
static_assert(ROUTED % GROUPS == 0 && GROUPS <= 32, "groups of experts are equal, and a lane each at least");
static_assert(TOPK <= 32 && TOPK <= GROUP_SIZE * TOP_GROUPS, "a token's experts are written by a lane each");
static_assert(MAX_M <= WARPS, "a warp a token");

// Larger numbers of a larger value; 0 is below all of them.
DEV u32 in_order(float v) {
  const u32 b = __float_as_uint(v);
  return b >> 31 ? ~b : b | 0x80000000u;
}
DEV float warp_sum(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  return v;
}

DEV void route(const float (&logit)[PER], const float (&bias)[PER], float factor, int first, int* ids, float* weights) {
  const int lane = threadIdx.x & 31;
  float score[PER], choice[PER];
  if (ROUTER == 1) {
    float top = logit[0];
#pragma unroll
    for (int j = 1; j < PER; j++) top = fmaxf(top, logit[j]);
#pragma unroll
    for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, i));
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < PER; j++) sum += score[j] = expf(logit[j] - top);
    sum = warp_sum(sum);
#pragma unroll
    for (int j = 0; j < PER; j++) score[j] = score[j] / sum;
  } else {
#pragma unroll
    for (int j = 0; j < PER; j++) score[j] = 1.f / (1.f + expf(-logit[j]));
  }
#pragma unroll
  for (int j = 0; j < PER; j++) choice[j] = BIAS ? score[j] + bias[j] : score[j];
  bool open = true;  // this lane's group is one that the token may use
  if (GROUPS > 1) {
    float one = __int_as_float(0xFF800000), two = one;  // the best two of this lane, then of its group
#pragma unroll
    for (int j = 0; j < PER; j++) {
      two = fmaxf(two, fminf(one, choice[j]));
      one = fmaxf(one, choice[j]);
    }
    const float lane_one = one, lane_two = two;
    const int lead = lane / GROUP_LANES * GROUP_LANES;
#pragma unroll
    for (int i = 1; i < GROUP_LANES; i++) {
      const int from = lead + (lane - lead + i) % GROUP_LANES;
      const float other_one = __shfl_sync(~0u, lane_one, from), other_two = __shfl_sync(~0u, lane_two, from);
      two = fmaxf(fmaxf(two, other_two), fminf(one, other_one));
      one = fmaxf(one, other_one);
    }
    const float value = BIAS && GROUP_SIZE > 1 ? one + two : one;
    int better = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const float other = __shfl_sync(~0u, value, g * GROUP_LANES);
      better += other > value || (other == value && g < lane / GROUP_LANES);
    }
    open = better < TOP_GROUPS;
  }
  u32 key[PER], best = 0;
  int at = 0;
  float held = 0.f;
  auto look = [&]() {
    best = 0;
#pragma unroll
    for (int j = 0; j < PER; j++)
      if (key[j] > best) best = key[j], at = j, held = score[j];
  };
#pragma unroll
  for (int j = 0; j < PER; j++) key[j] = open && lane * PER + j < ROUTED ? in_order(choice[j]) : 0;
  look();
#pragma unroll 1
  for (int k = 0; k < TOPK; k++) {
    const u32 most = __reduce_max_sync(~0u, best);
    const int winner = __ffs(__ballot_sync(~0u, best == most)) - 1;
    if (lane == winner) {
      ids[k] = lane * PER + at - first, weights[k] = held;
#pragma unroll
      for (int j = 0; j < PER; j++)
        if (j == at) key[j] = 0;
      look();
    }
    __syncwarp();
  }
  float weight = lane < TOPK ? weights[lane] : 0.f;
  if (RENORMALISE) weight = weight / (warp_sum(weight) + 1e-20f);
  if (lane < TOPK) weights[lane] = weight * factor;
}
#endif

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
moe_decode(const u16* x, const void* ids, const float* weights,
           const u8* __restrict__ w13, const float* __restrict__ scale13, const u8* __restrict__ w2,
           const float* __restrict__ scale2, u32* __restrict__ exchange, u64* __restrict__ arrivals,
           u16* __restrict__ out, int tokens, int experts, int exchange_words, float factor, int first, int half_logits) {
  extern __shared__ __align__(128) u8 ring[];
  __shared__ Shared s;
  const int tid = threadIdx.x, lane = tid & 31, warp = uniform(tid >> 5), cta = blockIdx.x;
  const int col = lane >> 2, quad = lane & 3;  // of mma fragments: B column / A row, and k quarter
  const int pairs = tokens * TOPK;
  constexpr u32 EXPERT13 = (u32)PAIR_TILES * K_BLOCKS * 2 * BLOCK, EXPERT2 = (u32)I_BLOCKS * ROW_TILES * BLOCK;
  const int list = FEW ? warp : 0;
  const u32 full = kept(smem_of(s.full + warp * DEPTH)), slots = kept(smem_of(ring) + warp * DEPTH * SLOT);
  const u32 tables = kept(smem_of(&s.tables));

  const bool gates = DOWN_WARPS == 0 || warp < GATE_WARPS;  // the other warps take down items from the start
  // this warp's share of a gate/up tile, along k
  const int team = warp / TEAM, rank = warp % TEAM;
  const u32 sums_full = kept(smem_of(s.sums_full + team)), sums_empty = kept(smem_of(s.sums_empty + team));
  const int kb0 = K_BLOCKS * rank / TEAM;
  const int kbn = K_BLOCKS % TEAM ? K_BLOCKS * (rank + 1) / TEAM - kb0 : WARP_BLOCKS;
  const int pieces = (kbn + PIECE - 1) / PIECE;

  // activations in the form of operand B, this lane's column and k quarter of each block; columns beyond the
  // group's tokens hold what they held, and nobody reads their sums
  u32 xf[WARP_BLOCKS][1][8] = {};
  auto load_x = [&](int b, const uint4* p) {
    if (p) {
      const uint4 v = load_input(p + b * 8), w = load_input(p + b * 8 + 1);
      const u32 r[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 8; i++) xf[b][0][i] = r[i];
    }
  };
  auto row_of = [&](int token) { return reinterpret_cast<const uint4*>(x + (size_t)token * HIDDEN + kb0 * 64 + quad * 16); };
  if (tid == 0) {
    for (int i = 0; i < TEAMS; i++) bar_init(smem_of(s.sums_full + i), TEAM), bar_init(smem_of(s.sums_empty + i), TEAM);
    bar_init(tables, LISTERS);
    s.claims = 0;
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < DEPTH; i++) bar_init(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
#if ROUTER
  float bias[PER], logit[PER];
#pragma unroll
  for (int j = 0; j < PER; j++) bias[j] = BIAS && lane * PER + j < ROUTED ? load_factor(weights + lane * PER + j) : 0.f;
#endif
  __syncthreads();  // barriers and the counter of claims are set up
  // what came before this launch, if that was told to let it start early
  asm volatile("griddepcontrol.wait;" ::: "memory");
#if ROUTER
  if (warp < tokens) {
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int e = warp * ROUTED + lane * PER + j;
      if (lane * PER + j >= ROUTED)
        logit[j] = __int_as_float(0xFF800000);
      else if (half_logits)
        logit[j] = __uint_as_float(load_half(reinterpret_cast<const u16*>(ids) + e) << 16);
      else
        logit[j] = load_factor(reinterpret_cast<const float*>(ids) + e);
    }
  }
#else
  const int id = tid < pairs || (FEW && lane < pairs) ? (int)load_input(reinterpret_cast<const int*>(ids) + (FEW ? lane : tid)) : -1;
#endif
  u64 arrival = 0;
  if (tid == 0) arrival = atomicAdd(arrivals, 1ull);
  if (MAX_M == 1 && gates) {
#pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++) load_x(b, b < kbn && col == 0 ? row_of(0) : nullptr);
  }
#if ROUTER
  if (warp < tokens) route(logit, bias, factor, first, s.chosen + warp * TOPK, s.weight + warp * TOPK);
  __syncthreads();
  const int id = tid < pairs || (FEW && lane < pairs) ? s.chosen[FEW ? lane : tid] : -1;
#endif
  if (FEW) {
    if (warp == 0)
      for (int i = lane; i < PAIRS * COLUMNS; i += 32) s.column[i] = (u8)NONE;
    if (SHARED) {
      for (int i = lane; i < groups_of_shared(tokens); i += 32) s.expert[warp][i] = (u16)(experts + i % SHARED1);
      __syncwarp();
      if (warp == 0) enlist_shared(s, tokens, lane, 32);
    }
    __syncwarp();
  } else {
    for (int i = tid; i < PAIRS * COLUMNS; i += WARPS * 32) s.column[i] = (u8)NONE;
    Grouping& g = s.grouping;
    for (int i = tid; i < experts; i += WARPS * 32) g.first[i] = CHOSEN;
    for (int i = tid; i < 8 * CHOSEN; i += WARPS * 32) g.hits[i / CHOSEN][i % CHOSEN] = 0;
    if (SHARED && tid < groups_of_shared(tokens)) s.expert[0][tid] = (u16)(experts + tid % SHARED1);
    __syncthreads();
    if (SHARED) enlist_shared(s, tokens, tid, WARPS * 32);
  }
  const int groups = uniform(FEW ? group_few(s, id, experts, groups_of_shared(tokens)) : group_many(s, id, experts, groups_of_shared(tokens)));
  const int tiles = groups * PAIR_TILES;
  if (FEW && MAX_M > 1) __syncthreads();  // warp 0 has listed the groups; of one token, the lists come with the factors

  // ---- the copies: gate/up pieces of this team's tiles, then down items of this CTA's output rows
  const int tile0 = gates ? team * GRID + cta : tiles, tile_step = TEAMS * GRID;
  const int row0 = ROW_TILES * cta / GRID, rows = ROW_TILES * (cta + 1) / GRID - row0;
  const int items = rows ? groups * I_BLOCKS : 0;  // a small hidden size leaves CTAs without output
  int next_tile = tile0, next_piece = 0;
  const u8* next_src = nullptr;
  auto seek = [&]() {
    const u32 row = next_tile % PAIR_TILES * K_BLOCKS + kb0;
    next_src = w13 + (u64)(u32)uniform(s.expert[list][next_tile / PAIR_TILES]) * EXPERT13 + row * (2 * BLOCK);
  };
  if (tile0 < tiles) seek();
  auto request = [&](int slot) {
    const u32 dst = slots + slot * SLOT, bar = full + slot * 8;
    if (next_tile < tiles && pieces > 0) {
      const int left = kbn - next_piece * PIECE;
      const u32 bytes = (left < PIECE ? left : PIECE) * (2 * BLOCK);
      if (elected()) {
        bar_expect(bar, bytes);
        bulk_copy(dst, next_src, bytes, bar);
      }
      next_src += PIECE * 2 * BLOCK;
      if (++next_piece == pieces) {
        next_piece = 0;
        next_tile += tile_step;
        if (next_tile < tiles) seek();
      }
    } else {
      u32 claim = 0;
      if (lane == 0) claim = atomicAdd(&s.claims, 1);
      const int item0 = uniform(claim) * ITEMS;
      if (lane == 0) s.claimed[warp * DEPTH + slot] = item0;
      constexpr int TOGETHER = ITEMS < RUN ? 1 : RUN;  // where a slot has no room for a run, each row is a copy
      u32 expected = 0;
#pragma unroll
      for (int i = 0; i < ITEMS; i += TOGETHER)
        if (item0 + i < items) {
          const int group = (item0 + i) / I_BLOCKS, block = (item0 + i) % I_BLOCKS;
          const u32 at = (block / RUN * ROW_TILES + row0) * RUN + block % RUN;
          const u8* src = w2 + (u64)(u32)uniform(s.expert[list][group]) * EXPERT2 + at * BLOCK;
          const int copies = TOGETHER == RUN ? 1 : rows;
          const u32 bytes = TOGETHER == RUN ? rows * RUN * BLOCK : BLOCK;
          if (elected())
            for (int c = 0; c < copies; c++) bulk_copy(dst + i * CTA_ROWS * BLOCK + c * BLOCK, src + c * (RUN * BLOCK), bytes, bar);
          expected += rows * TOGETHER * BLOCK;
        }
      if (lane == 0 && expected) bar_expect(bar, expected);
      __syncwarp();  // all lanes read the claim
    }
  };
  if (MAX_M > 1) request(0);
  // ---- loads that would queue behind megabytes of weights later
  auto source_x = [&](int tile) -> const uint4* {
    const int group = tile / PAIR_TILES;
    return col < s.count[group] ? row_of(token_of(s.pair[group * 8 + col])) : nullptr;
  };
  if (MAX_M > 1 && tile0 < tiles) {
    const uint4* p = source_x(tile0);
#pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++) load_x(b, b < kbn ? p : nullptr);
  }
  float factors[4] = {};
  const bool chosen = tid < pairs && (u32)id < (u32)experts;
  const bool always = SHARED && tid >= CHOSEN && tid < PAIRS && (tid - CHOSEN) % MAX_M < tokens;
  const bool lists = chosen || always;
  if (lists) {
    const int e = always ? experts + (tid - CHOSEN) / MAX_M : id;
    factors[0] = load_factor(scale13 + 2 * e), factors[1] = load_factor(scale13 + 2 * e + 1);
    factors[2] = load_factor(scale2 + e), factors[3] = 1.f;
#if ROUTER
    if (chosen) factors[3] = s.weight[tid];
#else
    if (chosen) factors[3] = load_factor(weights + tid);
#endif
  }

#pragma unroll 1
  for (int i = MAX_M > 1; i < DEPTH; i++) request(i);

  // ---- per-pair factors; the arrival count says which launch this is
  if (warp < LISTERS) {
    // not before the copies: the first use of a load waits for it
    asm volatile("" : "+f"(factors[0]), "+f"(factors[1]), "+f"(factors[2]), "+f"(factors[3]));
    if (lists) {
      s.gate_scale[tid] = factors[0] * DECODE_SCALE;
      s.up_scale[tid] = factors[1] * DECODE_SCALE;
      s.out_scale[tid] = factors[2] * factors[3];
    }
    if (tid == 0) s.epoch = (u32)(arrival / GRID);
    __syncwarp();
    if (lane == 0) bar_arrive(tables);
  }

  int slot = 0;
  u32 parity = 0;
  auto advance = [&]() {
    if (++slot == DEPTH) slot = 0, parity ^= 1;
  };

  // ---- phase 1: h = silu(gate) * up of this team's tiles
  int turn = 0;
#pragma unroll 1
  for (int tile = tile0; tile < tiles; tile += tile_step, turn++) {
    const int group = tile / PAIR_TILES, next = tile + tile_step;
    const int held = MAX_M == 1 ? 1 : s.count[group];
    // the next tile's activations replace this one's as soon as a piece is done with them
    const bool reload = MAX_M > 1 && next < tiles && next / PAIR_TILES != group;
    const uint4* next_x = reload ? source_x(next) : nullptr;
    float sums[2][1][4] = {};  // of gate and up
#pragma unroll
    for (int b0 = 0; b0 < WARP_BLOCKS; b0 += PIECE) {
      if (b0 < kbn) {
        bar_wait(full + slot * 8, parity);
        const u32 base = slots + slot * SLOT + lane * 16;
#pragma unroll
        for (int b = b0; b < b0 + PIECE && b < WARP_BLOCKS; b++)
          if (b < kbn) {
            const u32 p = base + (b - b0) * (2 * BLOCK);
            const u32 scales = ring32(p + 1024 - lane * 12);
            u32 a[2][4][4];
            decode_block(ring128(p), scales, a[0]);
            decode_block(ring128(p + 512), scales >> 16, a[1]);
            multiply<2, 1>(a, xf[b], sums);
          }
        __syncwarp();
        request(slot);
        advance();
        if (reload) {
#pragma unroll
          for (int b = b0; b < b0 + PIECE && b < WARP_BLOCKS; b++) load_x(b, b < kbn ? next_x : nullptr);
        }
      }
    }
    // the team's partial sums meet in shared memory; one warp a token adds them up
    bar_wait(sums_empty, ~turn & 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int c = quad * 2 + i;
      if (c < GROUP && c < held) {
        float* p = s.partial + (warp * GROUP + c) * 32 + col;
        p[0] = sums[0][0][i], p[8] = sums[0][0][2 + i], p[16] = sums[1][0][i], p[24] = sums[1][0][2 + i];
      }
    }
    __syncwarp();
    if (lane == 0) bar_arrive(sums_full);
    int c = (u32)(rank + turn) % TEAM;
    if (c >= held && lane == 0) bar_arrive(sums_empty);
#pragma unroll 1
    for (; c < held; c += TEAM) {
      bar_wait(tables, 0);
      bar_wait(sums_full, turn & 1);
      float v = 0.f;
#pragma unroll
      for (int w = 0; w < TEAM; w++) v += s.partial[((team * TEAM + w) * GROUP + c) * 32 + lane];
      __syncwarp();
      if (c + TEAM >= held && lane == 0) bar_arrive(sums_empty);  // before h is published, which takes a while
      const int p = s.pair[group * 8 + c];
      v *= lane < 16 ? s.gate_scale[p] : s.up_scale[p];
      const float u = __shfl_down_sync(~0u, v, 16);
      const float h = v / (1.f + __expf(-v)) * u * s.out_scale[p];
      const float odd = __shfl_down_sync(~0u, h, 1);
      const int row = tile % PAIR_TILES;
      u32* to = exchange + (s.epoch & 1) * exchange_words + (p * (u32)INTER + row * 16 + lane) / 2;
      if (lane < 16 && !(lane & 1)) store_word(to, pack_bf16(h, odd));
    }
  }

  // ---- phase 2: this CTA's output rows, over all experts hit.  h is there when it is no longer NOT_YET; the
  // half of the exchange that the next launch will use is made so again.
  if (gates) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  bar_wait(tables, 0);
  const u32* h_now = exchange + (s.epoch & 1) * exchange_words + quad * 8;
  uint4* h_next = reinterpret_cast<uint4*>(exchange + (~s.epoch & 1) * exchange_words);
  for (int i = cta * WARPS * 32 + tid; i < exchange_words / 4; i += GRID * WARPS * 32)
    h_next[i] = make_uint4(NOT_YET, NOT_YET, NOT_YET, NOT_YET);
  // in the form of operand B: columns are tokens, zero where one does not go to the expert
  u32 hf[AHEAD][N_TILES][8];
  const u32* from[AHEAD][N_TILES];
  const u32 columns = kept(smem_of(s.column) + col);
  auto load_h = [&](int i) {
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
      uint4 v = make_uint4(0, 0, 0, 0), w = v;
      if (from[i][n]) v = load_exchange(from[i][n]), w = load_exchange(from[i][n] + 4);
      const u32 r[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 8; j++) hf[i][n][j] = r[j];
    }
  };
  auto fetch = [&](int i, int item) {
    if (item >= items) return;
    const int group = item / I_BLOCKS, block = item % I_BLOCKS;
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
      u32 pair;
      asm volatile("ld.shared.u8 %0, [%1];" : "=r"(pair) : "r"(columns + group * COLUMNS + n * 8));
      from[i][n] = pair == NONE ? nullptr : h_now + block * 32 + pair * (INTER / 2);
    }
    load_h(i);
  };
  auto await = [&](int i) {
    while (true) {
      u32 last = 0;
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int j = 0; j < 8; j++) last = max(last, hf[i][n][j]);
      if (__all_sync(~0u, last != NOT_YET)) break;
      if (DOWN_WARPS && !gates) __nanosleep(NAP);
      load_h(i);
    }
  };
  // Where this CTA has a row tile less than others, the last one's sums are of stale bytes, and nobody reads them.
  float acc[CTA_ROWS][N_TILES][4] = {};
  const int* claimed = s.claimed + warp * DEPTH;
  int item0 = claimed[slot];
#pragma unroll
  for (int i = 0; i < AHEAD; i++) fetch(i, item0 + i);
#pragma unroll 1
  while (item0 < items) {
    const int following = claimed[slot + 1 == DEPTH ? 0 : slot + 1];
    bar_wait(full + slot * 8, parity);
    const u32 base = slots + slot * SLOT + lane * 16;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      if (item0 + i < items) {
        auto decode_row = [&](int r, u32(&a)[4][4]) {
          const u32 p = base + (ITEMS < RUN ? r : (i / RUN * CTA_ROWS + r) * RUN + i % RUN) * BLOCK;
          decode_block(ring128(p), ring16(p + 512 - lane * 14), a);
        };
        // decoding comes first: it needs no h, which may still be on its way
#pragma unroll
        for (int r0 = 0; r0 < CTA_ROWS; r0 += CHUNK) {
          u32 a[CHUNK][4][4];
#pragma unroll
          for (int r = 0; r < CHUNK; r++) {
            decode_row(r0 + r, a[r]);
            if (r0 == 0)
#pragma unroll
              for (int j = 0; j < 4; j++)  // or the compiler moves the decoding behind the wait
                asm volatile("" ::"r"(a[r][j][0]), "r"(a[r][j][1]), "r"(a[r][j][2]), "r"(a[r][j][3]));
          }
          if (r0 == 0) await(i % AHEAD);
          multiply<CHUNK, N_TILES>(a, hf[i % AHEAD], reinterpret_cast<float(&)[CHUNK][N_TILES][4]>(acc[r0]));
        }
        fetch(i % AHEAD, i + AHEAD < ITEMS ? item0 + i + AHEAD : following + i + AHEAD - ITEMS);
      }
    }
    __syncwarp();
    request(slot);
    advance();
    item0 = following;
  }

  // ---- the warps' sums, then the output
  __syncthreads();
  float* sum = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int r = 0; r < CTA_ROWS; r++)
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int c = n * 8 + quad * 2 + (i & 1);
        if (c < MAX_M) sum[(warp * N_TILES * 8 + c) * SUM_STRIDE + r * 16 + col + (i >> 1) * 8] = acc[r][n][i];
      }
  __syncthreads();
#pragma unroll 1
  for (int o = tid; o < tokens * rows * 16; o += WARPS * 32) {
    const int token = o / (rows * 16), r = o % (rows * 16);
    float v = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) v += sum[(w * N_TILES * 8 + token) * SUM_STRIDE + r];
    out[(size_t)token * HIDDEN + row0 * 16 + r] = (u16)pack_bf16(v * DECODE_SCALE, 0.f);
  }
}
