// The kernels of a routed-expert layer with NVFP4 weights and many tokens: order (for WGMMA), gate and up, down, output.
// README.md beside this file: the layout (the decode kernel's), the launches, why they are so, and what was tried.
//
// Compile-time parameters (build.py sets them):
//   HIDDEN, INTER, EXPERTS, TOPK     the layer, widths in multiples of 64
//   MAX_M                            most tokens a launch takes
//   TILES                            most tiles of eight tokens in one pass over an expert's weights
//   UP_UNITS, UP_BLOCKS, UP_DEPTH    gate/up: units a CTA, k64 blocks of a warp's stage, stages of the ring
//   DOWN_UNITS, DOWN_BLOCKS, DOWN_DEPTH    likewise
//   WARPS                            that multiply: 16 or 8
//   WGMMA                            1: Hopper's warpgroup products, 0: mma.sync, which any target has
//   UP_BYTES, DOWN_BYTES, STATIC_BYTES     shared memory as the plan counted it; checked here
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEV __device__ __forceinline__

constexpr int ROW_WARPS = 3;                                // that fetch activations; one more fetches weights
constexpr int THREADS = (WARPS + 1 + ROW_WARPS) * 32;       // whole groups of four, as registers are dealt out by those
constexpr int BLOCK = 576;                                  // 16 rows x 64 k: 512 B of codes, 64 B of scales
constexpr int RUN = INTER / 64 % 2 ? 1 : 2;                 // k64 blocks of a row tile that lie together in w2
constexpr int PAIRS = MAX_M * TOPK;
constexpr int MOST_DEPTH = 12;
constexpr int PASS = 8 * TILES;                             // tokens of a group, at most
constexpr int MOST_GROUPS = EXPERTS + PAIRS / PASS < PAIRS ? EXPERTS + PAIRS / PASS : PAIRS;
constexpr int PART = 8 * 36;                                // words of a warp's partial sums: eight tokens, 32 rows and a gap
constexpr int EACH = (EXPERTS + WARPS * 32 - 1) / (WARPS * 32);  // experts a thread adds up
constexpr float DECODE_SCALE = 16384.f;                     // decoded weights are value * 2^-14

template <bool UP>
struct Phase {
  static constexpr int UNITS = UP ? UP_UNITS : DOWN_UNITS;  // a unit is two 16-row tiles: gate and up rows, or neighbours
  static constexpr int SPLIT = WARPS / UNITS;               // warps that share a unit, each with a part of every stage
  static constexpr int BLOCKS = UP ? UP_BLOCKS : DOWN_BLOCKS;
  static constexpr int STEP = SPLIT * BLOCKS;               // k64 blocks of a stage
  static constexpr int DEPTH = UP ? UP_DEPTH : DOWN_DEPTH;
  static constexpr int WIDTH = UP ? HIDDEN : INTER;         // of the sum
  static constexpr int K_BLOCKS = WIDTH / 64;
  static constexpr int ALL_UNITS = UP ? INTER / 16 : HIDDEN / 32;
  static constexpr int ROW_GROUPS = (ALL_UNITS + UNITS - 1) / UNITS;
  static constexpr int STAGES = (K_BLOCKS + STEP - 1) / STEP;
  static constexpr int X_STRIDE = STEP * 128 + (WGMMA ? 0 : 16);  // 16 bytes more: neighbouring rows use different banks
  static constexpr int WEIGHTS = UNITS * 2 * STEP * BLOCK;
  static constexpr int SLOT = WEIGHTS + PASS * X_STRIDE;
  static constexpr int RING = DEPTH * SLOT;
  static constexpr u32 EXPERT_BYTES = (u32)ALL_UNITS * K_BLOCKS * 2 * BLOCK;
  static_assert(WARPS % UNITS == 0 && SPLIT <= 4, "a unit has one, two or four warps");
  static_assert(!WGMMA || STEP % 2 == 0, "a warp transposes two blocks at a time");
  static_assert(UP || (STEP % RUN == 0 && (BLOCKS % RUN == 0 || BLOCKS == 1)), "a stage has whole runs, a warp's part whole runs or one block");
};
constexpr int SORT_BYTES = 2 * WARPS * EXPERTS;             // while pairs are sorted: pairs of each expert in each warp's part

struct Group { u16 expert, first, count, unused; };
struct Shared {
  u64 full[MOST_DEPTH], empty[MOST_DEPTH], posted[MOST_DEPTH];   // a stage has landed; has been read; says what it will hold
  int item[MOST_DEPTH];               // of a stage
  int groups, items_unused;
  u32 warp_total[WARPS];
  Group group[MOST_GROUPS];
  u16 list[PAIRS];                    // pairs by expert
};
static_assert(HIDDEN % 64 == 0 && INTER % 64 == 0, "widths are multiples of 64");
static_assert(PAIRS < 65536 && EXPERTS < 65536, "pairs and experts are 16-bit");
static_assert(UP_DEPTH >= 2 && UP_DEPTH <= MOST_DEPTH && DOWN_DEPTH >= 2 && DOWN_DEPTH <= MOST_DEPTH, "two to twelve stages");
static_assert(UP_BYTES == Phase<true>::RING + WARPS * PART * 4 && DOWN_BYTES == Phase<false>::RING, "the plan counts the rings");
static_assert(sizeof(Shared) <= STATIC_BYTES, "the plan leaves room for the rest");
static_assert(SORT_BYTES <= Phase<true>::RING && SORT_BYTES <= Phase<false>::RING, "sorting takes place in the ring");

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
// 16 bytes from global to shared memory, and the arrival of what this thread has asked for so far.
DEV void copy16(u32 dst, const u8* src) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory"); }
DEV void arrive_with_copies(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory"); }
// One lane, and the compiler knows that it is one: it would otherwise put a loop over lanes around each bulk copy.
DEV bool elected() {
  u32 yes;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(yes));
  return yes;
}
DEV void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void let_successor_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// A launch of five warps a scheduler has 96 registers a thread; the sums of many tokens take more, the copies hardly any.
DEV void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(WARPS == 8 ? 80 : WGMMA ? 64 : 32)); }
DEV void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(WARPS == 8 ? 208 : WGMMA ? 104 : 112)); }
DEV u32 kept(u32 v) {  // an address the compiler keeps in a register: it would otherwise compute it anew wherever it is used
  asm volatile("" : "+r"(v));
  return v;
}
DEV int uniform(int v) { return __shfl_sync(~0u, v, 0); }
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
// Plain loads: the read-only path wants data that nobody writes from the start of a kernel on, and these start early.
DEV u32 load_input(const void* p) {
  u32 v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
DEV float load_factor(const float* p) { return __uint_as_float(load_input(p)); }
DEV void add4(float* p, const float (&v)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
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
DEV void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#if WGMMA
// 64 rows, 16 a warp, by 8 N columns: operand A in registers as for mma.sync, B in shared memory, the same sums.
#define OPERANDS_D(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
template <int N>
DEV void wgmma(float (&c)[N][4], const u32 (&a)[4], u64 b);
template <>
DEV void wgmma<1>(float (&c)[1][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;}"
               : OPERANDS_D(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<2>(float (&c)[2][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<3>(float (&c)[3][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, %16, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<4>(float (&c)[4][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<5>(float (&c)[5][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n40k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19}, {%20,%21,%22,%23}, %24, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<6>(float (&c)[6][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23}, {%24,%25,%26,%27}, %28, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4), OPERANDS_D(5) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<7>(float (&c)[7][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n56k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27}, {%28,%29,%30,%31}, %32, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4), OPERANDS_D(5), OPERANDS_D(6) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<8>(float (&c)[8][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4), OPERANDS_D(5), OPERANDS_D(6), OPERANDS_D(7) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<9>(float (&c)[9][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35}, {%36,%37,%38,%39}, %40, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4), OPERANDS_D(5), OPERANDS_D(6), OPERANDS_D(7), OPERANDS_D(8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
DEV void wgmma<10>(float (&c)[10][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39}, {%40,%41,%42,%43}, %44, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4), OPERANDS_D(5), OPERANDS_D(6), OPERANDS_D(7), OPERANDS_D(8), OPERANDS_D(9) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef OPERANDS_D
DEV void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
#endif
// As in moe_decode.cu, which says why: two E4M3 scales as bf16 pairs times 2^112, eight E2M1 codes as operand A.
DEV void scales_of(u32 bytes, u32& row0, u32& row8) {
  u32 h;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"((u16)bytes));
  h = mul2(mul2(h >> 3, 0x77807780u), 0x77807780u);
  row0 = __byte_perm(h, h, 0x1010);
  row8 = __byte_perm(h, h, 0x3232);
}
DEV void decode(u32 q, u32 s0, u32 s8, u32 (&a)[4]) {
  const u32 bits = 0x81C081C0u;
  const u32 q2 = q << 2, q6 = q << 6;
  const u32 q8 = __funnelshift_l(q, q, 8), q12 = __funnelshift_l(q, q, 12);
  a[0] = mul2(q & bits, s0);
  a[1] = mul2(q12 & bits, s8);
  a[2] = mul2((q2 ^ q6) & bits, s0);
  a[3] = mul2((q2 ^ q8) & bits, s8);
}

// Pairs by expert, alike in every CTA: within an expert in the order of their numbers.  Pairs whose expert is not here
// belong to no group.  An expert with more than PASS pairs has several groups, of nearly as many tiles each.
// All warps that multiply take part; what this leaves behind is there for them and the others after barrier 0.
DEV void sort_pairs(Shared& s, u8* scratch, const int* ids, int pairs) {
  const int tid = threadIdx.x, lane = tid & 31, warp = uniform(tid >> 5);
  u16* hits = reinterpret_cast<u16*>(scratch);               // [warp][expert]
  constexpr int ROUNDS = (PAIRS + WARPS * 32 - 1) / (WARPS * 32);
  const int rounds = (pairs + WARPS * 32 - 1) / (WARPS * 32);
  if (warp < WARPS) {
    int id[ROUNDS], place[ROUNDS];  // of this lane's pairs; place: among the warp's pairs of the expert
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const int i = (warp * rounds + r) * 32 + lane;
      id[r] = r < rounds && i < pairs ? (int)load_input(ids + i) : -1;
    }
    for (int i = tid; i < WARPS * EXPERTS / 2; i += WARPS * 32) reinterpret_cast<u32*>(hits)[i] = 0;
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      if (r < rounds) {
        const bool valid = (u32)id[r] < (u32)EXPERTS;
        const u32 same = __match_any_sync(~0u, id[r]);
        const int rank = __popc(same & ((1u << lane) - 1));
        u16* hit = hits + warp * EXPERTS + (valid ? id[r] : 0);
        const int before = *hit;
        place[r] = before + rank;
        __syncwarp();
        if (valid && rank == 0) *hit = (u16)(before + __popc(same));
        __syncwarp();
      }
    }
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
    // pairs and groups of this thread's experts, together in one word: at most 2^16 pairs, fewer groups
    u32 total[EACH], sum = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const int e = tid * EACH + k;
      u32 count = 0;
      if (e < EXPERTS) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
          const u32 c = hits[w * EXPERTS + e];
          hits[w * EXPERTS + e] = (u16)count;
          count += c;
        }
      }
      total[k] = count | (count + PASS - 1) / PASS << 17;
      sum += total[k];
    }
    u32 upto = sum;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const u32 v = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += v;
    }
    if (lane == 31) s.warp_total[warp] = upto;
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
    u32 start = upto - sum;
#pragma unroll
    for (int w = 0; w < WARPS; w++) start += w < warp ? s.warp_total[w] : 0;
    if (tid == WARPS * 32 - 1) s.groups = (start + sum) >> 17;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const int e = tid * EACH + k;
      const u32 count = total[k] & 0x1FFFF, groups = total[k] >> 17, first = start & 0x1FFFF, at = start >> 17;
      if (e < EXPERTS && count) {
        const u32 tiles = (count + 7) / 8;
        for (u32 i = 0; i < groups; i++) {
          const u32 from = tiles * i / groups * 8, to = tiles * (i + 1) / groups * 8;
          s.group[at + i] = {(u16)e, (u16)(first + from), (u16)((to < count ? to : count) - from), 0};
        }
        for (int w = 0; w < WARPS; w++) hits[w * EXPERTS + e] += (u16)first;
      }
      start += total[k];
    }
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      if (r < rounds && (u32)id[r] < (u32)EXPERTS)
        s.list[hits[warp * EXPERTS + id[r]] + place[r]] = (u16)((warp * rounds + r) * 32 + lane);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies will write where this was
  __syncthreads();
}

// ---- the warps that fill the ring

// The first takes items from a counter and asks for weights.  An item is a row group and a group of pairs.
template <bool UP>
DEV void fill_weights(Shared& s, u32 ring, const u8* weights, u32* counter) {
  using P = Phase<UP>;
  const int lane = threadIdx.x & 31;
  const int groups = uniform(s.groups), items = groups * P::ROW_GROUPS;
  const u32 full = kept(smem_of(s.full)), empty = kept(smem_of(s.empty)), posted = kept(smem_of(s.posted));
  int slot = 0;
  u32 parity = 1;
  auto take = [&]() {
    u32 item = 0;
    if (lane == 0) item = atomicAdd(counter, 1);
    return item;
  };
  u32 next = take();
  while (true) {
    const int item = uniform(next);
    if (item >= items) break;
    next = take();
    const int rows = item / groups, group = item % groups;
    const u8* expert = weights + (u64)(u32)uniform(s.group[group].expert) * P::EXPERT_BYTES;
    const int left = P::ALL_UNITS - rows * P::UNITS, units = left < P::UNITS ? left : P::UNITS;
#pragma unroll 1
    for (int stage = 0; stage < P::STAGES; stage++) {
      bar_wait(empty + slot * 8, parity);
      const int rest = P::K_BLOCKS - stage * P::STEP, blocks = P::K_BLOCKS % P::STEP && rest < P::STEP ? rest : P::STEP;
      const u32 dst = ring + slot * P::SLOT, bar = full + slot * 8;
      if (elected()) {
        s.item[slot] = item;
        bar_expect(bar, units * blocks * 2 * BLOCK);
        bar_arrive(posted + slot * 8);
        if (UP) {
          const u8* src = expert + (u32)(rows * P::UNITS * P::K_BLOCKS + stage * P::STEP) * (2 * BLOCK);
#pragma unroll
          for (int u = 0; u < P::UNITS; u++)
            if (P::ALL_UNITS % P::UNITS == 0 || u < units)
              bulk_copy(dst + u * P::STEP * 2 * BLOCK, src + u * P::K_BLOCKS * (2 * BLOCK), blocks * 2 * BLOCK, bar);
        } else {
          constexpr int TILES_ALL = HIDDEN / 16;
          const u8* src = expert + (u32)(stage * (P::STEP / RUN) * TILES_ALL + rows * P::UNITS * 2) * (RUN * BLOCK);
#pragma unroll
          for (int r = 0; r < P::STEP / RUN; r++)
            if (P::K_BLOCKS % P::STEP == 0 || r * RUN < blocks)
              bulk_copy(dst + r * P::UNITS * 2 * RUN * BLOCK, src + r * TILES_ALL * (RUN * BLOCK), units * 2 * RUN * BLOCK, bar);
        }
      }
      if (++slot == P::DEPTH) slot = 0, parity ^= 1;
    }
  }
  bar_wait(empty + slot * 8, parity);
  if (lane == 0) {
    s.item[slot] = -1;
    bar_arrive(full + slot * 8);
    bar_arrive(posted + slot * 8);
  }
}

// The others ask for the rows of activations, of x by token and of h by pair, 16 bytes a lane: a bulk copy a row takes one
// warp 200 cycles each, which was the limit.
template <bool UP>
DEV void fill_rows(Shared& s, u32 ring, const u16* rows, int part) {
  using P = Phase<UP>;
  constexpr int CHUNKS = P::STEP * 8;  // of 16 bytes, a row of a stage
  const int lane = threadIdx.x & 31;
  const int groups = uniform(s.groups);
  const u32 full = kept(smem_of(s.full)), posted = kept(smem_of(s.posted));
  int slot = 0;
  u32 parity = 0;
  while (true) {
    bar_wait(posted + slot * 8, parity);
    const int item = uniform(s.item[slot]);
    if (item < 0) break;
    const Group g = s.group[item % groups];
    const int count = uniform(g.count);
    const u16* list = s.list + uniform(g.first);
#pragma unroll 1
    for (int stage = 0; stage < P::STAGES; stage++) {
      if (stage) bar_wait(posted + slot * 8, parity);
      const u32 dst = ring + slot * P::SLOT + P::WEIGHTS;
      const u8* src = reinterpret_cast<const u8*>(rows) + stage * P::STEP * 128;
#if WGMMA
      // As a descriptor without swizzling has them: 16 bytes of each of eight rows lie together.
      const int quads = (count + 7) / 8 * (P::STEP * 2);
#pragma unroll 2
      for (int i = part; i < quads; i += ROW_WARPS) {
        const int row = i / (P::STEP * 2) * 8 + (lane & 7), chunk = i % (P::STEP * 2) * 4 + (lane >> 3);
        if (row < count && (P::K_BLOCKS % P::STEP == 0 || stage * CHUNKS + chunk < P::K_BLOCKS * 8)) {
          const u32 pair = list[row];
          copy16(dst + chunk * (PASS * 16) + row * 16, src + (UP ? pair / TOPK : pair) * (u32)(P::WIDTH * 2) + chunk * 16);
        }
      }
#else
#pragma unroll 2
      for (int i = part * 32 + lane; i < count * CHUNKS; i += ROW_WARPS * 32) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        const u32 pair = list[row];
        if (P::K_BLOCKS % P::STEP == 0 || stage * CHUNKS + chunk < P::K_BLOCKS * 8)
          copy16(dst + row * P::X_STRIDE + chunk * 16, src + (UP ? pair / TOPK : pair) * (u32)(P::WIDTH * 2) + chunk * 16);
      }
#endif
      arrive_with_copies(full + slot * 8);
      if (++slot == P::DEPTH) slot = 0, parity ^= 1;
    }
  }
  bar_arrive(full + slot * 8);
}

// ---- the warps that multiply

struct Cursor { int slot; u32 parity; };

// Sums of a unit's 32 rows over a warp's part of all stages, for N tiles of eight tokens.
template <bool UP, int N>
DEV void sum_up(u32 full, u32 empty, u32 weights, u32 rows, bool idle, int split, Cursor& c, float (&acc)[2][N][4]) {
  using P = Phase<UP>;
  const int lane = threadIdx.x & 31;
#pragma unroll 1
  for (int stage = 0; stage < P::STAGES; stage++) {
    bar_wait(full + c.slot * 8, c.parity);
    if (WGMMA) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // tensor cores read what ordinary copies wrote
    const u32 w = weights + c.slot * P::SLOT, at = rows + c.slot * (P::SLOT >> (WGMMA ? 4 : 0));
    const u32 x = WGMMA && !UP ? uniform(at) : at;  // descriptors are in uniform registers
    if (WGMMA || !idle) {  // a warpgroup multiplies together
      [[maybe_unused]] u32 a[2][4][4];
#pragma unroll
      for (int b = 0; b < P::BLOCKS; b++) {
        if (P::K_BLOCKS % P::STEP == 0 || stage * P::STEP + split * P::BLOCKS + b < P::K_BLOCKS) {
          // of the unit's two tiles
          const u32 p0 = UP ? w + b * 2 * BLOCK : w + (b / RUN * P::UNITS * 2 * RUN + b % RUN) * BLOCK;
          const u32 p1 = UP ? p0 + 512 : p0 + RUN * BLOCK;
          const uint4 q0 = ring128(p0), q1 = ring128(p1);
          u32 s[2][2];
          if (UP) {
            const u32 scales = ring32(p0 + 1024 - lane * 12);
            scales_of(scales, s[0][0], s[0][1]);
            scales_of(scales >> 16, s[1][0], s[1][1]);
          } else {
            scales_of(ring16(p0 + 512 - lane * 14), s[0][0], s[0][1]);
            scales_of(ring16(p1 + 512 - lane * 14), s[1][0], s[1][1]);
          }
          const u32 words[2][4] = {{q0.x, q0.y, q0.z, q0.w}, {q1.x, q1.y, q1.z, q1.w}};
#if WGMMA
#pragma unroll
          for (int t = 0; t < 2; t++) {
            if (b || t) wgmma_wait<1>();  // the products that last used these registers
#pragma unroll
            for (int i = 0; i < 4; i++) {
              decode(words[t][i], s[t][0], s[t][1], a[t][i]);
              asm volatile("" : "+r"(a[t][i][0]), "+r"(a[t][i][1]), "+r"(a[t][i][2]), "+r"(a[t][i][3]));
            }
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < 4; i++)
              wgmma<N>(acc[t], a[t][i], 8ull << 32 | (u64)(PASS << 16 | x + (b * 8 + i * 2) * PASS));
            wgmma_commit();
          }
#else
#pragma unroll
          for (int half = 0; half < 2; half++) {
            u32 a[2][2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
              for (int t = 0; t < 2; t++) decode(words[t][half * 2 + i], s[t][0], s[t][1], a[i][t]);
#pragma unroll
            for (int n = 0; n < N; n++) {
              const uint4 v = ring128(x + n * 8 * P::X_STRIDE + b * 128 + half * 16);
              mma(acc[0][n], a[0][0], v.x, v.y);
              mma(acc[1][n], a[0][1], v.x, v.y);
              mma(acc[0][n], a[1][0], v.z, v.w);
              mma(acc[1][n], a[1][1], v.z, v.w);
            }
          }
#endif
        }
      }
    }
#if WGMMA
    wgmma_wait<0>();
#endif
    __syncwarp();
    if (lane == 0) bar_arrive(empty + c.slot * 8);
    if (++c.slot == P::DEPTH) c.slot = 0, c.parity ^= 1;
  }
}

// The warps of a unit meet.
template <bool UP>
DEV void meet(int unit) {
  using P = Phase<UP>;
  if (P::SPLIT == 1)
    __syncwarp();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(unit + 1), "n"(P::SPLIT * 32) : "memory");
}

struct Item { int unit, split, tile, count, first; };  // tile: of h's or the output's rows

// h = silu(gate) * up * the pair's weight and all factors, in bf16.
template <int N>
DEV void write_h(Shared& s, float* part, const Item& it, const float (&acc)[2][N][4], float gate, float up, float out,
                 const float* weights, u16* h) {
  using P = Phase<true>;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  float* mine = part + (it.unit * P::SPLIT + it.split) * PART;
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int c = 0; c < 4; c++) mine[(2 * t + (c & 1)) * 36 + i * 16 + g + (c >> 1) * 8] = acc[i][n][c];
    meet<true>(it.unit);
#pragma unroll
    for (int k = 0; k < 4 / P::SPLIT; k++) {
      const int token = (it.split * (4 / P::SPLIT) + k) * 2 + (lane >> 4), at = n * 8 + token;
      const bool valid = at < it.count;
      const u32 pair = s.list[valid ? it.first + at : it.first];
      const float factor = load_factor(weights + pair) * out;
      float a = 0.f, b = 0.f;
#pragma unroll
      for (int w = 0; w < P::SPLIT; w++) {
        const float* p = part + (it.unit * P::SPLIT + w) * PART + token * 36 + (lane & 15);
        a += p[0], b += p[16];
      }
      a *= gate;
      const float v = a / (1.f + __expf(-a)) * (b * up) * factor, odd = __shfl_down_sync(~0u, v, 1);
      // of each 64 columns, the pairs of columns in the order in which operand B has them
      const int column = WGMMA ? (it.tile & ~3) * 16 + (lane & 14) * 4 + (it.tile & 3) * 2 : it.tile * 16 + (lane & 15);
      if (valid && !(lane & 1)) *reinterpret_cast<u32*>(h + (size_t)pair * INTER + column) = pack_bf16(v, odd);
    }
    meet<true>(it.unit);
  }
}

// Adds to the fp32 sums of the output: four rows of a token at a time.
template <int N>
DEV void add_up(Shared& s, const Item& it, float (&acc)[2][N][4], float* sums) {
  const int lane = threadIdx.x & 31, t = lane & 3;
  const bool odd = lane & 4, high = lane & 8;
  const u32 row = it.tile * 16 + (high ? 8 : 0) + (lane >> 4) * 4;
#pragma unroll
  for (int n = 0; n < N; n++) {
    const int at = n * 8 + 2 * t + (odd ? 1 : 0);
    const bool valid = at < it.count;
    const u32 pair = s.list[valid ? it.first + at : it.first];
    float* to = sums + (size_t)(pair / TOPK) * HIDDEN + row;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      // four lanes with neighbouring rows exchange: each of them has all four of one token and half of the tile
      float(&v)[4] = acc[i][n];
      const float a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 4), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 4);
      const float p0 = odd ? a : v[0], p1 = odd ? v[1] : a;  // of the even and the odd lane, this one's token
      const float r0 = odd ? b : v[2], r1 = odd ? v[3] : b;  // likewise eight rows below
      const float c = __shfl_xor_sync(~0u, high ? p0 : r0, 8), d = __shfl_xor_sync(~0u, high ? p1 : r1, 8);
      const float four[4] = {high ? c : p0, high ? d : p1, high ? r0 : c, high ? r1 : d};
      if (valid) add4(to + i * 16, four);
    }
  }
}

template <bool UP, int N>
DEV void work(Shared& s, u32 full, u32 empty, u32 w, u32 x, float* part, const Item& it, bool idle, Cursor& c,
              float gate, float up, float out, const float* weights, u16* h, float* sums) {
  if constexpr (N < TILES) {
    if (it.count > N * 8) {
      work<UP, N + 1>(s, full, empty, w, x, part, it, idle, c, gate, up, out, weights, h, sums);
      return;
    }
  }
  float acc[2][N][4] = {};
  sum_up<UP, N>(full, empty, w, x, idle, it.split, c, acc);
  if (idle) return;
  if constexpr (UP)
    write_h<N>(s, part, it, acc, gate, up, out, weights, h);
  else
    add_up<N>(s, it, acc, sums);
}

template <bool UP>
DEV void multiply(Shared& s, u8* memory, const float* weights, const float* scale13, const float* scale2, u16* h, float* sums, int tokens) {
  using P = Phase<UP>;
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x >> 5), g = lane >> 2, t = lane & 3;
  const int unit = warp % P::UNITS, split = warp / P::UNITS, groups = uniform(s.groups);
  const u32 full = kept(smem_of(s.full)), empty = kept(smem_of(s.empty)), ring = smem_of(memory);
  const int block0 = split * P::BLOCKS;  // of this warp in a stage
  const u32 mine = UP ? (unit * P::STEP + block0) * 2 * BLOCK : ((block0 / RUN * P::UNITS + unit) * 2 * RUN + block0 % RUN) * BLOCK;
  const u32 w = kept(ring + mine + lane * 16), x = kept(WGMMA ? ring + P::WEIGHTS + block0 * (128 * PASS) >> 4 : ring + P::WEIGHTS + g * P::X_STRIDE + block0 * 128 + t * 32);
  float* part = reinterpret_cast<float*>(memory + P::RING);
  if (UP)  // while the first stage is on its way
    for (int i = blockIdx.x * (WARPS * 32) + threadIdx.x; i < tokens * (HIDDEN / 4); i += gridDim.x * (WARPS * 32))
      reinterpret_cast<float4*>(sums)[i] = make_float4(0.f, 0.f, 0.f, 0.f);
  Cursor c = {0, 0};
  while (true) {
    bar_wait(full + c.slot * 8, c.parity);
    const int item = uniform(s.item[c.slot]);
    if (item < 0) break;
    const int rows = item / groups;
    const Group group = s.group[item % groups];
    const Item it = {unit, split, (rows * P::UNITS + unit) * (UP ? 1 : 2), uniform(group.count), uniform(group.first)};
    const bool idle = P::ALL_UNITS % P::UNITS && rows * P::UNITS + unit >= P::ALL_UNITS;
    float gate = 0.f, up = 0.f, out = 0.f;
    if (UP) {
      const int expert = group.expert;
      gate = load_factor(scale13 + 2 * expert) * DECODE_SCALE, up = load_factor(scale13 + 2 * expert + 1) * DECODE_SCALE;
      out = load_factor(scale2 + expert);
    }
    work<UP, 1>(s, full, empty, w, x, part, it, idle, c, gate, up, out, weights, h, sums);
  }
}

template <bool UP>
DEV void begin(Shared& s) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Phase<UP>::DEPTH; i++) {
      bar_init(smem_of(s.full + i), 1 + ROW_WARPS * 32);
      bar_init(smem_of(s.empty + i), WARPS);
      bar_init(smem_of(s.posted + i), 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
grouped_up(const u16* x, const int* ids, const float* weights, const u8* w13, const float* scale13, const float* scale2,
           u16* h, float* sums, u32* counters, int tokens) {
  extern __shared__ __align__(128) u8 memory[];
  __shared__ Shared s;
  begin<true>(s);
  if (!WGMMA) wait_for_predecessor();
  let_successor_start();
  sort_pairs(s, memory, ids, tokens * TOPK);
  const int warp = uniform(threadIdx.x >> 5);
  if (warp >= WARPS) {
    give_registers();
    if (warp == WARPS)
      fill_weights<true>(s, kept(smem_of(memory)), w13, counters);
    else {
      if (WGMMA) wait_for_predecessor();
      fill_rows<true>(s, smem_of(memory), x, warp - WARPS - 1);
    }
  } else {
    take_registers();
    multiply<true>(s, memory, weights, scale13, scale2, h, sums, tokens);
  }
}

#if WGMMA
// Of each 64 columns of x, pairs of columns in the order in which operand B has them: 16 bytes are what the four lanes of
// a quad multiply in half an instruction.  After this, x is copied as it is.
extern "C" __global__ void __launch_bounds__(256) grouped_order(const u32* x, uint4* ordered, int chunks) {
  wait_for_predecessor();
  let_successor_start();
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < chunks) {
    const u32* from = x + i / 8 * 32 + i % 8;
    ordered[i] = make_uint4(load_input(from), load_input(from + 8), load_input(from + 16), load_input(from + 24));
  }
}
#endif

// Starts while gate and up end.  The ids and the counter are older than that kernel, so only h and the sums wait for it.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
grouped_down(const int* ids, const u8* w2, const u16* h, float* sums, u32* counters, int tokens) {
  extern __shared__ __align__(128) u8 memory[];
  __shared__ Shared s;
  begin<false>(s);
  let_successor_start();
  sort_pairs(s, memory, ids, tokens * TOPK);
  const int warp = uniform(threadIdx.x >> 5);
  if (warp >= WARPS) {
    give_registers();
    if (warp == WARPS) {
      fill_weights<false>(s, kept(smem_of(memory)), w2, counters + 1);
    } else {
      wait_for_predecessor();
      fill_rows<false>(s, smem_of(memory), h, warp - WARPS - 1);
    }
  } else {
    take_registers();
    wait_for_predecessor();
    multiply<false>(s, memory, nullptr, nullptr, nullptr, nullptr, sums, tokens);
  }
}

// The sums become the output.
extern "C" __global__ void __launch_bounds__(256) grouped_out(const float4* sums, uint4* out, u32* counters, int eights) {
  wait_for_predecessor();
  let_successor_start();
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < 2) counters[i] = 0;
  if (i < eights) {
    const float4 a = sums[2 * i], b = sums[2 * i + 1];
    const float k = DECODE_SCALE;
    out[i] = make_uint4(pack_bf16(a.x * k, a.y * k), pack_bf16(a.z * k, a.w * k), pack_bf16(b.x * k, b.y * k), pack_bf16(b.z * k, b.w * k));
  }
}
