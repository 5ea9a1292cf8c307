// The kernels of a routed-expert layer with NVFP4 weights and many tokens: order (for WGMMA), gate and up, down, output.
// README.md beside this file: the layout (the decode kernel's), the launches, why they are so, and what was tried.
//
// Compile-time parameters (build.py sets them):
//   HIDDEN, INTER, EXPERTS, TOPK     the layer, widths in multiples of 64
//   MAX_M                            most tokens a launch takes
//   TILES                            most tiles of eight tokens in one pass over an expert's weights
//   UP_UNITS, UP_BLOCKS, UP_DEPTH    gate/up: units a CTA, k64 blocks of a warp's stage, stages of the ring
//   DOWN_UNITS, DOWN_BLOCKS, DOWN_DEPTH    likewise
//   WARPS                            that multiply: 16
//   WGMMA                            1: Hopper's warpgroup products, 0: mma.sync, which any target has
//   OVERLAP                          1: down starts on groups whose h is there, 0: when gate and up have ended
//   UP_BYTES, DOWN_BYTES, STATIC_BYTES, SORT_BYTES     shared memory as the plan counted it; checked here
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEV __device__ __forceinline__

constexpr int ROW_WARPS = WGMMA ? 2 : 3;                    // that fetch activations; one more fetches weights
constexpr int THREADS = (WARPS + 4) * 32;                   // whole groups of four, as registers are dealt out by those
constexpr int BLOCK = 576;                                  // 16 rows x 64 k: 512 B of codes, 64 B of scales
constexpr int RUN = INTER / 64 % 2 ? 1 : 2;                 // k64 blocks of a row tile that lie together in w2
constexpr int PAIRS = MAX_M * TOPK;
constexpr int MOST_DEPTH = 12;
constexpr int PASS = 8 * TILES;                             // tokens of a group, at most
constexpr int MOST_GROUPS = EXPERTS + PAIRS / PASS < PAIRS ? EXPERTS + PAIRS / PASS : PAIRS;
constexpr int PART = WGMMA ? 8 * 32 : 8 * 36;               // words of a warp's partial sums: eight tokens, 32 rows and a gap
constexpr int PART_BYTES = WARPS > UP_UNITS ? WARPS * PART * 4 : 0;  // where warps share a unit
constexpr int EACH = (EXPERTS + WARPS * 32 - 1) / (WARPS * 32);  // experts a thread adds up
constexpr float DECODE_SCALE = 16384.f;                     // decoded weights are value * 2^-14

template <bool UP>
struct Phase {
  static constexpr int UNITS = UP ? UP_UNITS : DOWN_UNITS;  // a unit is two 16-row tiles: gate and up rows, or neighbours
  static constexpr int TEAM = WARPS / UNITS;                // warps that share a unit:
  static constexpr int SPLIT = WGMMA ? 1 : TEAM;            // each with a part of every stage,
  static constexpr int MINE = WGMMA && TEAM == 2 ? 1 : 2;   // or, of warpgroup products, with one of its tiles
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
  static_assert(WARPS % UNITS == 0 && TEAM <= (WGMMA ? 2 : 4), "a unit has one, two or four warps");
  static_assert(!WGMMA || K_BLOCKS % STEP == 0, "warpgroup products take whole stages");
  static_assert(UP || (STEP % RUN == 0 && (BLOCKS % RUN == 0 || BLOCKS == 1)), "a stage has whole runs, a warp's part whole runs or one block");
};

// In global memory, zero between layers.
struct Counters {
  u32 up_items, down_items;           // taken
  u32 cleared;                        // warps that have set their part of the sums to zero
  u32 written[MOST_GROUPS];           // items of gate and up whose h is there, of a group
};
struct Group { u16 expert, first, count, unused; };
constexpr int CHUNKS = (MOST_GROUPS + 31) / 32;
struct Sorting {                        // in the ring, before anything else is there
  u16 hits[WARPS][EXPERTS];             // pairs of each expert in each warp's part
  u16 place[PAIRS];                     // of a pair, among the warp's pairs of its expert
  u16 sizes[TILES][CHUNKS];             // groups of as many tiles, largest first, among 32 that follow each other
  Group group[MOST_GROUPS];             // by expert
};
struct Shared {
  u64 full[MOST_DEPTH], empty[MOST_DEPTH], posted[MOST_DEPTH];   // a stage has landed; has been read; says what it will hold
  u64 ready[MOST_DEPTH];              // what has landed may be read by warpgroup products
  u64 written[2];                     // h of every second item
  int item[MOST_DEPTH];               // of a stage
  int groups, items_unused;
  u32 warp_total[WARPS];
  Group group[MOST_GROUPS];
  u16 list[PAIRS];                    // pairs by expert
};
static_assert(WARPS == 16, "registers are dealt out for sixteen");
static_assert(HIDDEN % 64 == 0 && INTER % 64 == 0, "widths are multiples of 64");
static_assert(PAIRS < 65536 && EXPERTS < 65536, "pairs and experts are 16-bit");
static_assert(UP_DEPTH >= 2 && UP_DEPTH <= MOST_DEPTH && DOWN_DEPTH >= 2 && DOWN_DEPTH <= MOST_DEPTH, "two to twelve stages");
static_assert(UP_BYTES == Phase<true>::RING + PART_BYTES && DOWN_BYTES == Phase<false>::RING, "the plan counts the rings");
static_assert(sizeof(Shared) <= STATIC_BYTES, "the plan leaves room for the rest");
static_assert(sizeof(Sorting) <= SORT_BYTES, "the plan counts what sorting takes");
static_assert(SORT_BYTES <= Phase<true>::RING && SORT_BYTES <= Phase<false>::RING, "sorting takes place in the ring");

DEV u32 smem_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEV void bar_init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
DEV void bar_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEV void bar_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
DEV void bar_wait(u32 bar, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, %2;\n@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(bar),
      "r"(parity), "r"(1000000)  // ns to sleep: who asks again and again takes turns from those who work
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
DEV bool bar_done(u32 bar, u32 parity) {
  u32 yes;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(yes) : "r"(bar), "r"(parity) : "memory");
  return yes;
}
// What this warp's lanes have written, and what they have waited for, is there for whoever sees the count.
DEV void count_up(u32* counter) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
DEV void wait_for_count(const u32* counter, u32 count) {
  if ((threadIdx.x & 31) == 0) {
    u32 seen;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    while (seen < count);
  }
  __syncwarp();
}
DEV void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void let_successor_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// A launch of five warps a scheduler has 96 registers a thread; the sums of many tokens take more, the copies hardly any.
DEV void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(32)); }
DEV void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(112)); }
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
template <>
DEV void wgmma<11>(float (&c)[11][4], const u32 (&a)[4], u64 b) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n88k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43}, {%44,%45,%46,%47}, %48, p, 1, 1, 0;}"
               : OPERANDS_D(0), OPERANDS_D(1), OPERANDS_D(2), OPERANDS_D(3), OPERANDS_D(4), OPERANDS_D(5), OPERANDS_D(6), OPERANDS_D(7), OPERANDS_D(8), OPERANDS_D(9), OPERANDS_D(10) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
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

DEV void sorters_meet() { asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory"); }

// Groups of many tiles first: what is left when the first multiprocessors run out of work is small.
DEV void largest_first(Shared& s, Sorting& sorting) {
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x >> 5), groups = s.groups, chunks = (groups + 31) / 32;
  const auto size = [&](int i) { return i < groups ? TILES - (sorting.group[i].count + 7) / 8 : TILES; };
  for (int chunk = warp; chunk < chunks; chunk += WARPS) {
    const int mine = size(chunk * 32 + lane);
#pragma unroll
    for (int k = 0; k < TILES; k++) {
      const u32 same = __ballot_sync(~0u, mine == k);
      if (lane == k) sorting.sizes[k][chunk] = (u16)__popc(same);
    }
  }
  sorters_meet();
  for (int chunk = warp; chunk < chunks; chunk += WARPS) {
    u32 all = 0, before = 0;  // lane k: groups of size k
    if (lane < TILES) {
      for (int c = 0; c < chunks; c++) {
        const u32 n = sorting.sizes[lane][c];
        all += n;
        before += c < chunk ? n : 0;
      }
    }
    u32 upto = all;
#pragma unroll
    for (int d = 1; d < TILES; d *= 2) {
      const u32 v = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += v;
    }
    const int i = chunk * 32 + lane, mine = size(i);
    const u32 place = __shfl_sync(~0u, upto - all + before, mine), same = __match_any_sync(~0u, mine);
    if (i < groups) s.group[place + __popc(same & ((1u << lane) - 1))] = sorting.group[i];
  }
}

// This warp's pairs and their experts.  Some ids are asked for together; all at once would be more instructions, which have
// to be fetched, too.
template <class With>
DEV void each_pair(const int* ids, int pairs, With with) {
  constexpr int MOST = (PAIRS + WARPS * 32 - 1) / (WARPS * 32), TOGETHER = MOST < 8 ? MOST : 8;
  const int rounds = (pairs + WARPS * 32 - 1) / (WARPS * 32), start = uniform(threadIdx.x >> 5) * rounds * 32 + (threadIdx.x & 31);
#pragma unroll 1
  for (int first = 0; first < rounds; first += TOGETHER) {
    u32 id[TOGETHER];
#pragma unroll
    for (int r = 0; r < TOGETHER; r++) {
      const int i = start + (first + r) * 32;
      id[r] = first + r < rounds && i < pairs ? load_input(ids + i) : ~0u;
    }
#pragma unroll
    for (int r = 0; r < TOGETHER; r++)
      if (first + r < rounds) with(start + (first + r) * 32, id[r]);
  }
}

// Pairs by expert, alike in every CTA: within an expert in the order of their numbers.  Pairs whose expert is not here
// belong to no group.  An expert with more than PASS pairs has several groups, of nearly as many tiles each.
// All warps that multiply take part; what this leaves behind is there for them and the others after barrier 0.
DEV void sort_pairs(Shared& s, u8* scratch, const int* ids, int pairs) {
  const int tid = threadIdx.x, lane = tid & 31, warp = uniform(tid >> 5);
  Sorting& sorting = *reinterpret_cast<Sorting*>(scratch);
  u16* hits = sorting.hits[0];
  if (warp < WARPS) {
    for (int i = tid; i < WARPS * EXPERTS / 2; i += WARPS * 32) reinterpret_cast<u32*>(hits)[i] = 0;
    sorters_meet();
    each_pair(ids, pairs, [&](int i, u32 id) {
      const bool valid = id < EXPERTS;
      const u32 same = __match_any_sync(~0u, id);
      const int rank = __popc(same & ((1u << lane) - 1));
      u16* hit = hits + warp * EXPERTS + (valid ? id : 0);
      const int before = *hit;
      if (valid) sorting.place[i] = (u16)(before + rank);
      __syncwarp();
      if (valid && rank == 0) *hit = (u16)(before + __popc(same));
      __syncwarp();
    });
    sorters_meet();
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
    sorters_meet();
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
          sorting.group[at + i] = {(u16)e, (u16)(first + from), (u16)((to < count ? to : count) - from), 0};
        }
        for (int w = 0; w < WARPS; w++) hits[w * EXPERTS + e] += (u16)first;
      }
      start += total[k];
    }
    sorters_meet();
    each_pair(ids, pairs, [&](int i, u32 id) {
      if (id < EXPERTS) s.list[hits[warp * EXPERTS + id] + sorting.place[i]] = (u16)i;
    });
    largest_first(s, sorting);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies will write where this was
  __syncthreads();
}

// ---- the warps that fill the ring

// The first takes items from a counter and asks for weights.  An item is a row group and a group of pairs.  It also says
// when h of an item is there, which takes a fence that no warp with work should wait for.
template <bool UP>
DEV void fill_weights(Shared& s, u32 ring, const u8* weights, Counters* counters) {
  using P = Phase<UP>;
  const int lane = threadIdx.x & 31;
  const int items = uniform(s.groups) * P::ROW_GROUPS;
  const u32 full = kept(smem_of(s.full)), empty = kept(smem_of(s.empty)), posted = kept(smem_of(s.posted));
  int slot = 0;
  u32 parity = 1;
  auto take = [&]() {
    u32 item = 0;
    if (lane == 0) item = atomicAdd(UP ? &counters->up_items : &counters->down_items, 1);
    return item;
  };
  int begun = 0, told = 0, group = 0, group_before = 0;
  const auto tell = [&](int group, bool wait) {  // of the oldest item that has not been told
    const u32 bar = smem_of(s.written + told % 2), phase = told / 2 & 1;
    if (wait)
      bar_wait(bar, phase);
    else if (!uniform(bar_done(bar, phase)))
      return;
    count_up(counters->written + group);
    told++;
  };
  u32 next = take();
  while (true) {
    const int item = uniform(next);
    if (item >= items) break;
    next = take();
    if (UP && OVERLAP) {
      if (told + 1 < begun) tell(group_before, true);
      begun++;
      group_before = group;
    }
    group = item / P::ROW_GROUPS;
    const int rows = item % P::ROW_GROUPS;
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
      if (UP && OVERLAP && told + 1 < begun) tell(group_before, false);
    }
  }
  bar_wait(empty + slot * 8, parity);
  if (lane == 0) {
    s.item[slot] = -1;
    bar_arrive(full + slot * 8);
    bar_arrive(posted + slot * 8);
  }
  if (UP && OVERLAP) {
    if (told + 1 < begun) tell(group_before, true);
    if (told < begun) tell(group, true);
  }
}

// The others ask for the rows of activations, of x by token and of h by pair, 16 bytes a lane: a bulk copy a row takes one
// warp 200 cycles each, which was the limit.  A warp has tiles of eight rows, and an instruction takes 64 bytes of each.
// Between stages of gate and up they set the output's sums to zero.
template <bool UP>
DEV void fill_rows(Shared& s, u32 ring, const u16* rows, int part, float4* sums, int fours, Counters* counters) {
  using P = Phase<UP>;
  constexpr int SHARE = (TILES + ROW_WARPS - 1) / ROW_WARPS, COPIES = P::STEP * 2;
  constexpr u32 ROW = WGMMA ? 16 : P::X_STRIDE, CHUNK = WGMMA ? PASS * 16 : 16;  // in a slot: WGMMA has 16 bytes of eight rows together
  const int lane = threadIdx.x & 31, row = part * 8 + (lane & 7), chunk = lane >> 3;
  int zero = (blockIdx.x * ROW_WARPS + part) * 32;
  bool cleared = !UP;
  const auto clear = [&]() {
    if (zero + lane < fours) sums[zero + lane] = make_float4(0.f, 0.f, 0.f, 0.f);
    zero += gridDim.x * (ROW_WARPS * 32);
    if (zero < fours) return;
    if (OVERLAP) count_up(&counters->cleared);
    cleared = true;
  };
  const u32 full = kept(smem_of(s.full)), posted = kept(smem_of(s.posted));
  const u32 mine = kept(ring + P::WEIGHTS + row * ROW + chunk * CHUNK);
  int slot = 0;
  u32 parity = 0;
  while (true) {
    bar_wait(posted + slot * 8, parity);
    const int item = uniform(s.item[slot]);
    if (item < 0) break;
    const Group g = s.group[item / P::ROW_GROUPS];
    if (!UP && OVERLAP) wait_for_count(counters->written + item / P::ROW_GROUPS, Phase<true>::ROW_GROUPS);
    u32 from[SHARE];  // of this lane's rows, or none
#pragma unroll
    for (int k = 0; k < SHARE; k++) {
      const int i = k * ROW_WARPS * 8 + row;
      const u32 pair = s.list[g.first + (i < g.count ? i : 0)];
      from[k] = i < g.count ? (UP ? pair / TOPK : pair) * (u32)(P::WIDTH * 2) + chunk * 16 : ~0u;
    }
#pragma unroll 1
    for (int stage = 0; stage < P::STAGES; stage++) {
      if (stage) bar_wait(posted + slot * 8, parity);
      const u32 dst = mine + slot * P::SLOT;
      const u8* src = reinterpret_cast<const u8*>(rows) + stage * P::STEP * 128;
#pragma unroll
      for (int k = 0; k < SHARE; k++) {
        if (from[k] != ~0u) {
#pragma unroll
          for (int j = 0; j < COPIES; j++)
            if (P::K_BLOCKS % P::STEP == 0 || stage * COPIES + j < P::K_BLOCKS * 2)
              copy16(dst + k * (ROW_WARPS * 8) * ROW + j * 4 * CHUNK, src + from[k] + j * 64);
        }
      }
      arrive_with_copies(full + slot * 8);
#pragma unroll 1
      for (int i = 0; i < (OVERLAP ? 4 : 2) && !cleared; i++) clear();
      if (++slot == P::DEPTH) slot = 0, parity ^= 1;
    }
  }
  bar_arrive(full + slot * 8);
  while (!cleared) clear();
}

#if WGMMA
// Tensor cores read, by a path of their own, what ordinary copies wrote.  The fence between the two takes hundreds of cycles,
// so one warp waits for it on behalf of all.
template <bool UP>
DEV void forward(Shared& s) {
  const u32 full = kept(smem_of(s.full)), ready = kept(smem_of(s.ready));
  int slot = 0;
  u32 parity = 0;
  bool last = false;
  while (!last) {
    bar_wait(full + slot * 8, parity);
    last = uniform(s.item[slot]) < 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if ((threadIdx.x & 31) == 0) bar_arrive(ready + slot * 8);
    if (++slot == Phase<UP>::DEPTH) slot = 0, parity ^= 1;
  }
}
#endif

// ---- the warps that multiply

struct Cursor { int slot; u32 parity; };

// A k64 block of the tiles of a unit that this warp has: codes, and the scales of rows g and g + 8.
template <bool UP>
struct Codes { u32 words[Phase<UP>::MINE][4], scales[Phase<UP>::MINE][2]; };

template <bool UP>
DEV Codes<UP> load_codes(u32 stage, int b) {
  using P = Phase<UP>;
  constexpr int NEXT = UP ? 512 : RUN * BLOCK;  // from one tile's codes to the other's
  const int lane = threadIdx.x & 31;
  const u32 at = UP ? stage + b * 2 * BLOCK : stage + (b / RUN * P::UNITS * 2 * RUN + b % RUN) * BLOCK;
  // of this lane: four bytes a block of gate and up, two of each otherwise
  const u32 up_tile = UP && P::MINE == 1 ? threadIdx.x / (P::UNITS * 32) : 0;
  const u32 scales = UP ? at + 1024 - lane * 12 - up_tile * 510 : at + 512 - lane * 14;
  Codes<UP> c;
#pragma unroll
  for (int t = 0; t < P::MINE; t++) {
    const uint4 q = ring128(at + t * NEXT);
    c.words[t][0] = q.x, c.words[t][1] = q.y, c.words[t][2] = q.z, c.words[t][3] = q.w;
  }
  if (UP && P::MINE == 2) {
    const u32 both = ring32(scales);
    scales_of(both, c.scales[0][0], c.scales[0][1]);
    scales_of(both >> 16, c.scales[P::MINE - 1][0], c.scales[P::MINE - 1][1]);
  } else {
#pragma unroll
    for (int t = 0; t < P::MINE; t++) scales_of(ring16(scales + t * NEXT), c.scales[t][0], c.scales[t][1]);
  }
  return c;
}

DEV void leave_slot(u32 empty, int slot) {
  if ((threadIdx.x & 31) == 0) bar_arrive(empty + slot * 8);
}

// Sums of a unit's 32 rows over a warp's part of all stages, for N tiles of eight tokens.
#if WGMMA
// Half a tile's products run while the next half is decoded into the registers of the half before, across stages too.
// At the end of a stage there must be none under way: the compiler would otherwise let them run one by one.
template <bool UP, int N>
DEV void sum_up(u32 full, u32 empty, u32 weights, u32 rows, Cursor& c, float (&acc)[Phase<UP>::MINE][N][4]) {
  using P = Phase<UP>;
  constexpr int PARTS = P::MINE * 2;
  Codes<UP> codes;
  u32 a[2][2][4];
  const auto halve = [&](int part) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      u32(&half)[4] = a[part % 2][i];
      const u32(&scales)[2] = codes.scales[part / 2];
      decode(codes.words[part / 2][part % 2 * 2 + i], scales[0], scales[1], half);
      asm volatile("" : "+r"(half[0]), "+r"(half[1]), "+r"(half[2]), "+r"(half[3]));
    }
  };
  const auto enter = [&](Cursor to) {
    bar_wait(full + to.slot * 8, to.parity);
    codes = load_codes<UP>(weights + to.slot * P::SLOT, 0);
  };
  enter(c);
  halve(0);
#pragma unroll 1
  for (int stage = 1; stage <= P::STAGES; stage++) {
    const u32 x = uniform(rows + c.slot * (P::SLOT >> 4));  // descriptors are in uniform registers
    Cursor next = c;
    if (++next.slot == P::DEPTH) next.slot = 0, next.parity ^= 1;
#pragma unroll
    for (int b = 0; b < P::BLOCKS; b++) {
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < 2; i++)
          wgmma<N>(acc[part / 2], a[part % 2][i], 8ull << 32 | (u64)(PASS << 16 | x + (b * 8 + part % 2 * 4 + i * 2) * PASS));
        wgmma_commit();
        if (part + 1 < PARTS) {
          wgmma_wait<1>();
          halve(part + 1);
        } else if (b + 1 < P::BLOCKS) {
          codes = load_codes<UP>(weights + c.slot * P::SLOT, b + 1);
          wgmma_wait<1>();
          halve(0);
        } else if (stage < P::STAGES) {
          enter(next);
          wgmma_wait<1>();
          halve(0);
        }
      }
    }
    wgmma_wait<0>();
    leave_slot(empty, c.slot);
    c = next;
  }
}
#else
template <bool UP, int N>
DEV void sum_up(u32 full, u32 empty, u32 weights, u32 rows, bool idle, int split, Cursor& c, float (&acc)[2][N][4]) {
  using P = Phase<UP>;
#pragma unroll 1
  for (int stage = 0; stage < P::STAGES; stage++) {
    bar_wait(full + c.slot * 8, c.parity);
    if (!idle) {
#pragma unroll
      for (int b = 0; b < P::BLOCKS; b++) {
        if (P::K_BLOCKS % P::STEP == 0 || stage * P::STEP + split * P::BLOCKS + b < P::K_BLOCKS) {
          const Codes<UP> codes = load_codes<UP>(weights + c.slot * P::SLOT, b);
          const u32 x = rows + c.slot * P::SLOT + b * 128;
#pragma unroll
          for (int half = 0; half < 2; half++) {
            u32 a[2][2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
              for (int t = 0; t < 2; t++) decode(codes.words[t][half * 2 + i], codes.scales[t][0], codes.scales[t][1], a[i][t]);
#pragma unroll
            for (int n = 0; n < N; n++) {
              const uint4 v = ring128(x + n * 8 * P::X_STRIDE + half * 16);
              mma(acc[0][n], a[0][0], v.x, v.y);
              mma(acc[1][n], a[0][1], v.x, v.y);
              mma(acc[0][n], a[1][0], v.z, v.w);
              mma(acc[1][n], a[1][1], v.z, v.w);
            }
          }
        }
      }
    }
    __syncwarp();
    leave_slot(empty, c.slot);
    if (++c.slot == P::DEPTH) c.slot = 0, c.parity ^= 1;
  }
}
#endif

// The warps of a unit meet.
template <bool UP>
DEV void meet(int unit) {
  using P = Phase<UP>;
  if (P::TEAM == 1)
    __syncwarp();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(unit + 1), "n"(P::TEAM * 32) : "memory");
}

struct Item { int unit, split, tile, count, first; };  // tile: of h's or the output's rows

// h = silu(gate) * up * the pair's weight and all factors, in bf16.
DEV float gated(float gate, float up, float factor) { return gate / (1.f + __expf(-gate)) * up * factor; }
// Where a column pair of h is: for WGMMA, of each 64 columns, pairs in the order in which operand B has them.
DEV u32 column_of(int tile, int row) { return WGMMA ? (tile & ~3) * 16 + row * 4 + (tile & 3) * 2 : tile * 16 + row; }

// A token's place in h and its factor.
struct Token { u32 pair; float factor; };

// Of eight tokens, the one this lane writes.  All are asked for before the first is used: each takes a trip to L2.
DEV Token token_of(Shared& s, const Item& it, int n, const float* weights) {
  const int lane = threadIdx.x & 31, at = n * 8 + 2 * (lane & 3) + (lane >> 2 & 1);
  const u32 pair = s.list[it.first + (at < it.count ? at : 0)];
  return {at < it.count ? pair : ~0u, load_factor(weights + pair)};
}

// Eight tokens, where a lane has gate and up of rows g and g + 8: neighbours in g exchange, so that each has two rows of
// one token.
DEV void write_tokens(const Item& it, const Token& token, const float (&gate)[4], const float (&up)[4], float gate_scale,
                      float up_scale, float out, u16* h) {
  const int g = (threadIdx.x & 31) >> 2;
  const bool odd = g & 1;
  const float factor = token.factor * out;
  float v[4];
#pragma unroll
  for (int c = 0; c < 4; c++) v[c] = gated(gate[c] * gate_scale, up[c] * up_scale, 1.f);
  const float a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 4) * factor, b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 4) * factor;
  u16* row = h + (size_t)token.pair * INTER;
  if (token.pair != ~0u) {
    *reinterpret_cast<u32*>(row + column_of(it.tile, g & 6)) = odd ? pack_bf16(a, v[1] * factor) : pack_bf16(v[0] * factor, a);
    *reinterpret_cast<u32*>(row + column_of(it.tile, (g & 6) + 8)) = odd ? pack_bf16(b, v[3] * factor) : pack_bf16(v[2] * factor, b);
  }
}

template <int N>
DEV void write_h(Shared& s, float* part, const Item& it, const float (&acc)[Phase<true>::MINE][N][4], float gate, float up,
                 float out, const float* weights, u16* h) {
  using P = Phase<true>;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  if constexpr (P::MINE == 1) {
    // one warp has gate, one up: they send each other every second eight tokens, through two buffers in turn
    float4* mine = reinterpret_cast<float4*>(part + (it.unit * 2 + it.split) * PART) + lane;
    const float4* other = reinterpret_cast<float4*>(part + (it.unit * 2 + 1 - it.split) * PART) + lane;
    Token tokens[(N + 1) / 2];
#pragma unroll
    for (int n = 0; n < N; n += 2) tokens[n / 2] = token_of(s, it, it.split && n + 1 < N ? n + 1 : n, weights);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      const int buffer = n / 2 % 2 * 32;
      const bool two = n + 1 < N;
      const float(&a)[4] = acc[0][n], (&b)[4] = acc[0][two ? n + 1 : n];
      mine[buffer] = it.split ? make_float4(a[0], a[1], a[2], a[3]) : make_float4(b[0], b[1], b[2], b[3]);
      meet<true>(it.unit);
      const float4 v = other[buffer];
      const float theirs[4] = {v.x, v.y, v.z, v.w};
      if (it.split == 0)
        write_tokens(it, tokens[n / 2], a, theirs, gate, up, out, h);
      else if (two)
        write_tokens(it, tokens[n / 2], theirs, b, gate, up, out, h);
    }
    meet<true>(it.unit);
  } else if constexpr (P::SPLIT == 1) {
    Token tokens[N];
#pragma unroll
    for (int n = 0; n < N; n++) tokens[n] = token_of(s, it, n, weights);
#pragma unroll
    for (int n = 0; n < N; n++) write_tokens(it, tokens[n], acc[0][n], acc[1][n], gate, up, out, h);
  } else {
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
        const float v = gated(a * gate, b * up, factor), next = __shfl_down_sync(~0u, v, 1);
        if (valid && !(lane & 1)) *reinterpret_cast<u32*>(h + (size_t)pair * INTER + column_of(it.tile, lane & 14)) = pack_bf16(v, next);
      }
      meet<true>(it.unit);
    }
  }
}

// Adds to the fp32 sums of the output: four rows of a token at a time.
template <int N>
DEV void add_up(Shared& s, const Item& it, float (&acc)[Phase<false>::MINE][N][4], float* sums) {
  const int lane = threadIdx.x & 31, t = lane & 3;
  const bool odd = lane & 4, high = lane & 8;
  const u32 row = it.tile * 16 + (high ? 8 : 0) + (lane >> 4) * 4;
  // Four lanes with neighbouring rows exchange: each of them has all four of one token and half of the tile.  All exchange
  // before anything is added, as they wait for one another.
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int i = 0; i < Phase<false>::MINE; i++) {
      float(&v)[4] = acc[i][n];
      const float a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 4), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 4);
      v[0] = odd ? a : v[0], v[1] = odd ? v[1] : a;  // of the even and the odd lane, this one's token
      v[2] = odd ? b : v[2], v[3] = odd ? v[3] : b;  // likewise eight rows below
    }
  }
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int i = 0; i < Phase<false>::MINE; i++) {
      float(&v)[4] = acc[i][n];
      const float c = __shfl_xor_sync(~0u, high ? v[0] : v[2], 8), d = __shfl_xor_sync(~0u, high ? v[1] : v[3], 8);
      const float e = high ? v[2] : v[0], f = high ? v[3] : v[1];
      v[0] = high ? c : e, v[1] = high ? d : f, v[2] = high ? e : c, v[3] = high ? f : d;
    }
  }
#pragma unroll
  for (int n = 0; n < N; n++) {
    const int at = n * 8 + 2 * t + (odd ? 1 : 0);
    if (at < it.count) {
      float* to = sums + (size_t)(s.list[it.first + at] / TOPK) * HIDDEN + row;
#pragma unroll
      for (int i = 0; i < Phase<false>::MINE; i++) add4(to + i * 16, acc[i][n]);
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
  float acc[Phase<UP>::MINE][N][4] = {};
#if WGMMA
  sum_up<UP, N>(full, empty, w, x, c, acc);
#else
  sum_up<UP, N>(full, empty, w, x, idle, it.split, c, acc);
#endif
  if (idle) return;
  if constexpr (UP)
    write_h<N>(s, part, it, acc, gate, up, out, weights, h);
  else
    add_up<N>(s, it, acc, sums);
}

template <bool UP>
DEV void multiply(Shared& s, u8* memory, const float* weights, const float* scale13, const float* scale2, u16* h, float* sums) {
  using P = Phase<UP>;
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x >> 5), g = lane >> 2, t = lane & 3;
  const int unit = warp % P::UNITS, split = warp / P::UNITS;
  const u32 full = kept(smem_of(WGMMA ? s.ready : s.full)), empty = kept(smem_of(s.empty)), ring = smem_of(memory);
  const int block0 = P::SPLIT > 1 ? split * P::BLOCKS : 0, tile0 = P::MINE == 1 ? split : 0;  // of this warp in a stage
  const u32 mine = UP ? (unit * P::STEP + block0) * 2 * BLOCK + tile0 * 512
                      : (((block0 / RUN * P::UNITS + unit) * 2 + tile0) * RUN + block0 % RUN) * BLOCK;
  const u32 w = kept(ring + mine + lane * 16), x = kept(WGMMA ? ring + P::WEIGHTS + block0 * (128 * PASS) >> 4 : ring + P::WEIGHTS + g * P::X_STRIDE + block0 * 128 + t * 32);
  float* part = reinterpret_cast<float*>(memory + P::RING);
  Cursor c = {0, 0};
#pragma unroll 1
  for (u32 count = 0;; count++) {
    bar_wait(full + c.slot * 8, c.parity);
    const int item = uniform(s.item[c.slot]);
    if (item < 0) break;
    const int rows = item % P::ROW_GROUPS;
    const Group group = s.group[item / P::ROW_GROUPS];
    const Item it = {unit, split, (rows * P::UNITS + unit) * (UP ? 1 : 2) + (UP ? 0 : tile0), uniform(group.count), uniform(group.first)};
    const bool idle = P::ALL_UNITS % P::UNITS && rows * P::UNITS + unit >= P::ALL_UNITS;
    float gate = 0.f, up = 0.f, out = 0.f;
    if (UP) {
      const int expert = group.expert;
      gate = load_factor(scale13 + 2 * expert) * DECODE_SCALE, up = load_factor(scale13 + 2 * expert + 1) * DECODE_SCALE;
      out = load_factor(scale2 + expert);
    }
    work<UP, 1>(s, full, empty, w, x, part, it, idle, c, gate, up, out, weights, h, sums);
    if (UP && OVERLAP) {
      __syncwarp();
      if (lane == 0) bar_arrive(smem_of(s.written + count % 2));
    }
  }
}

template <bool UP>
DEV void begin(Shared& s) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Phase<UP>::DEPTH; i++) {
      bar_init(smem_of(s.full + i), 1 + ROW_WARPS * 32);
      bar_init(smem_of(s.empty + i), WARPS);
      bar_init(smem_of(s.posted + i), 1);
      bar_init(smem_of(s.ready + i), 1);
    }
    for (int i = 0; i < 2; i++) bar_init(smem_of(s.written + i), WARPS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
grouped_up(const u16* x, const int* ids, const float* weights, const u8* w13, const float* scale13, const float* scale2,
           u16* h, float* sums, Counters* counters, int tokens) {
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
#if WGMMA
    else if (warp > WARPS + ROW_WARPS)
      forward<true>(s);
#endif
    else {
      if (WGMMA) wait_for_predecessor();
      fill_rows<true>(s, smem_of(memory), x, warp - WARPS - 1, reinterpret_cast<float4*>(sums), tokens * (HIDDEN / 4), counters);
    }
  } else {
    take_registers();
    multiply<true>(s, memory, weights, scale13, scale2, h, sums);
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

// Starts while gate and up end; the ids and the counter are older than that kernel.  With OVERLAP a group's h is read when
// it is there: all CTAs of gate and up have begun when this starts, or it would not, and none waits for this.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
grouped_down(const int* ids, const u8* w2, const u16* h, float* sums, Counters* counters, int tokens) {
  extern __shared__ __align__(128) u8 memory[];
  __shared__ Shared s;
  begin<false>(s);
  let_successor_start();
  sort_pairs(s, memory, ids, tokens * TOPK);
  const int warp = uniform(threadIdx.x >> 5);
  if (warp >= WARPS) {
    give_registers();
    if (warp == WARPS) {
      fill_weights<false>(s, kept(smem_of(memory)), w2, counters);
#if WGMMA
    } else if (warp > WARPS + ROW_WARPS) {
      forward<false>(s);
#endif
    } else {
      if (!OVERLAP) wait_for_predecessor();
      fill_rows<false>(s, smem_of(memory), h, warp - WARPS - 1, nullptr, 0, counters);
    }
  } else {
    take_registers();
    if (OVERLAP)
      wait_for_count(&counters->cleared, gridDim.x * ROW_WARPS);
    else
      wait_for_predecessor();
    multiply<false>(s, memory, nullptr, nullptr, nullptr, nullptr, sums);
  }
  if (OVERLAP) wait_for_predecessor();  // whoever waits for this kernel waits for both
}

// The sums become the output.
extern "C" __global__ void __launch_bounds__(256) grouped_out(const float4* sums, uint4* out, u32* counters, int eights) {
  constexpr int COUNTERS = sizeof(Counters) / 4;
  wait_for_predecessor();
  let_successor_start();
  const int i = blockIdx.x * 256 + threadIdx.x;
  for (int k = i; k < COUNTERS; k += gridDim.x * 256) counters[k] = 0;
  if (i < eights) {
    const float4 a = sums[2 * i], b = sums[2 * i + 1];
    const float k = DECODE_SCALE;
    out[i] = make_uint4(pack_bf16(a.x * k, a.y * k), pack_bf16(a.z * k, a.w * k), pack_bf16(b.x * k, b.y * k), pack_bf16(b.z * k, b.w * k));
  }
}
