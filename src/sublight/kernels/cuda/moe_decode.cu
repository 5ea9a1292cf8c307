// One persistent kernel for a routed-expert layer with NVFP4 weights and a few tokens.
// README.md beside this file: the layout, the phases, why they are so, and what was tried.
//
// Compile-time parameters (build.py sets them):
//   HIDDEN, INTER     widths, multiples of 64       TOPK    experts a token
//   MAX_M             most tokens a launch takes    GRID    CTAs, all resident at once
//   PIECE             k64 blocks a gate/up copy     ITEMS   down items a ring slot
//   DEPTH             ring slots a warp             HTERMS  bf16 terms that carry h (1 or 2)
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEV __device__ __forceinline__

constexpr int WARPS = 16;
constexpr int BLOCK = 576;                                  // 16 rows x 64 k: 512 B of codes, 64 B of scales
constexpr int K_BLOCKS = HIDDEN / 64, I_BLOCKS = INTER / 64;
constexpr int WARP_BLOCKS = (K_BLOCKS + WARPS - 1) / WARPS; // a warp's share of a gate/up tile
constexpr int ROW_TILES = HIDDEN / 16;                      // 16-row tiles of the output
constexpr int PAIR_TILES = INTER / 16;                      // 16-row (gate, up) tiles of an expert
constexpr int CTA_ROWS = (ROW_TILES + GRID - 1) / GRID;     // output tiles a CTA owns, at most
constexpr int GROUP = MAX_M < 8 ? MAX_M : 8;                // tokens of an expert in one pass
constexpr int PAIRS = MAX_M * TOPK;
constexpr int COLS = MAX_M * HTERMS;                        // columns of the down product: (token, term)
constexpr int N_TILES = (COLS + 7) / 8;
constexpr int SLOT_A = PIECE * 2 * BLOCK, SLOT_B = ITEMS * CTA_ROWS * BLOCK;
constexpr int SLOT = SLOT_A > SLOT_B ? SLOT_A : SLOT_B;
constexpr int RING = WARPS * DEPTH * SLOT;
constexpr int SUM_STRIDE = CTA_ROWS * 16 + 4;               // words between two columns of the final sum
constexpr int SUM_BYTES = WARPS * N_TILES * 8 * SUM_STRIDE * 4;
constexpr int STREAM = RING > SUM_BYTES ? RING : SUM_BYTES; // the final sum reuses the ring
constexpr int LISTS = MAX_M == 1 ? WARPS : 1;               // one token: a list a warp, no CTA-wide step
constexpr u32 NONE = 255;
constexpr float DECODE_SCALE = 16384.f;                     // decoded weights are value * 2^-14

static_assert(HIDDEN % 64 == 0 && INTER % 64 == 0, "widths are multiples of 64");
static_assert(PAIRS < 255 && (MAX_M > 1 || TOPK <= 32), "pairs are numbered by a byte, one token's by a lane");
static_assert(MAX_M <= 16 && N_TILES <= 2, "columns of the down product");

struct Shared {
  float partial[WARPS * GROUP * 32];  // gate/up sums of the warps: [warp][token][16 gate rows, 16 up rows]
  u64 full[WARPS * DEPTH];            // ring slots have landed
  u64 sums_full, sums_empty, tables;
  u32 epoch;
  int groups;
  float gate_scale[PAIRS], up_scale[PAIRS], out_scale[PAIRS];
  int ids[(PAIRS + 3) / 4 * 4];
  u32 leaders[8];
  int expert[LISTS][PAIRS];
  u8 count[PAIRS], first[PAIRS];
  u8 pair[LISTS][PAIRS * (MAX_M == 1 ? 1 : 8)];
  u8 column[MAX_M == 1 ? 1 : PAIRS * MAX_M];
};

DEV u32 smem_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEV void bar_init(u64* b, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_of(b)), "r"(count) : "memory");
}
DEV void bar_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_of(b)), "r"(bytes) : "memory");
}
DEV void bar_arrive(u64* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_of(b)) : "memory"); }
DEV void bar_wait(u64* b, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(
          smem_of(b)),
      "r"(parity)
      : "memory");
}
DEV void bulk_copy(void* dst, const u8* src, u32 bytes, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_of(dst)),
               "l"(src), "r"(bytes), "r"(smem_of(b))
               : "memory");
}
DEV ulonglong2 load_pair(const u64* p) {
  ulonglong2 v;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
  return v;
}
DEV void store_word(u64* p, u32 data, u32 flag) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"((u64)flag << 32 | data) : "memory");
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
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two E4M3 scales (rows g and g + 8 of this lane) as bf16, one register a row, times 2^112.
// E4M3 -> fp16 is exact; fp16 bits shifted right by three are bf16 bits of the value times 2^-112.
DEV void scales_of(u32 bytes, u32& row0, u32& row8) {
  u32 h;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"((u16)bytes));
  h = mul2(mul2(h >> 3 & 0x1FFF1FFFu | h & 0x80008000u, 0x77807780u), 0x77807780u);
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
template <int N>
DEV void block_product(uint4 q, u32 s0, u32 s8, const u32 (&b)[N][8], float (&c)[N][4]) {
  const u32 w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 a[4];
    decode(w[i], s0, s8, a);
#pragma unroll
    for (int n = 0; n < N; n++) mma(c[n], a, b[n][2 * i], b[n][2 * i + 1]);
  }
}

// Groups of up to eight pairs that share an expert, in order of first appearance.  Pairs whose expert
// is not here (id outside 0 .. experts - 1) belong to no group.
DEV int group_pairs(Shared& s, const int* __restrict__ ids, int pairs, int experts) {
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  if constexpr (MAX_M == 1) {
    int id = lane < pairs ? ids[lane] : -1;
    const u32 here = __ballot_sync(~0u, (u32)id < (u32)experts);
    if (here >> lane & 1) {
      const int u = __popc(here & ((1u << lane) - 1));
      s.expert[warp][u] = id;
      s.pair[warp][u] = (u8)lane;
    }
    __syncwarp();
    return __popc(here);
  } else {
    constexpr int PADDED = (PAIRS + 3) / 4 * 4;
    if (tid < PADDED) {
      int id = tid < pairs ? ids[tid] : -1;
      s.ids[tid] = (u32)id < (u32)experts ? id : -1;
    }
    for (int i = tid; i < PAIRS * MAX_M; i += WARPS * 32) s.column[i] = (u8)NONE;
    __syncthreads();
    int mine = -1, before = 0, total = 0, lead = 0;
    if (tid < PADDED) {
      mine = s.ids[tid];
#pragma unroll 4
      for (int q = 0; q < PADDED; q += 4) {
        const int4 v = *reinterpret_cast<const int4*>(s.ids + q);
        const int e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
          if (e[i] == mine) {
            if (q + i <= tid && (total & 7) == 0) lead = q + i;
            if (q + i < tid) before++;
            total++;
          }
      }
    }
    const u32 leads = __ballot_sync(~0u, mine >= 0 && lead == tid);
    if (lane == 0 && warp < 8) s.leaders[warp] = leads;
    __syncthreads();
    int groups = 0, u = 0;
#pragma unroll
    for (int w = 0; w < (PADDED + 31) / 32; w++) {
      const u32 m = s.leaders[w];
      if (w < lead >> 5) u += __popc(m);
      if (w == lead >> 5) u += __popc(m & ((1u << (lead & 31)) - 1));
      groups += __popc(m);
    }
    if (mine >= 0) {
      s.pair[0][u * 8 + (before & 7)] = (u8)tid;
      s.column[u * MAX_M + tid / TOPK] = (u8)tid;
      if (lead == tid) {
        const int left = total - before;
        s.expert[0][u] = mine;
        s.count[u] = (u8)(left < 8 ? left : 8);
      }
    }
    __syncthreads();
    return groups;
  }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
moe_decode(const u16* __restrict__ x, const int* __restrict__ ids, const float* __restrict__ weights,
           const u8* __restrict__ w13, const float* __restrict__ scale13, const u8* __restrict__ w2,
           const float* __restrict__ scale2, u64* __restrict__ exchange, u64* __restrict__ arrivals,
           u16* __restrict__ out, int tokens, int experts) {
  extern __shared__ __align__(128) u8 ring[];
  __shared__ Shared s;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, cta = blockIdx.x;
  const int col = lane >> 2, quad = lane & 3;  // of mma fragments: B column / A row, and k quarter
  const int pairs = tokens * TOPK;
  const int list = MAX_M == 1 ? warp : 0;
  u64* full = s.full + warp * DEPTH;
  u8* slots = ring + warp * DEPTH * SLOT;

  // this warp's share of a gate/up tile, along k
  const int kb0 = K_BLOCKS * warp / WARPS, kbn = K_BLOCKS * (warp + 1) / WARPS - kb0;
  const int pieces = (kbn + PIECE - 1) / PIECE;

  u32 xf[1][WARP_BLOCKS][8];
  auto load_x = [&](int token, bool valid) {
    const uint4* p = reinterpret_cast<const uint4*>(x + (size_t)token * HIDDEN + kb0 * 64 + quad * 16);
#pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++) {
      uint4 v = make_uint4(0, 0, 0, 0), w = v;
      if (valid && b < kbn) v = p[b * 8], w = p[b * 8 + 1];
      const u32 r[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 8; i++) xf[0][b][i] = r[i];
    }
  };
  if (MAX_M == 1) load_x(0, col == 0);

  if (tid == 0) {
    bar_init(&s.sums_full, WARPS);
    bar_init(&s.sums_empty, WARPS);
    bar_init(&s.tables, (PAIRS + 31) / 32);
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < DEPTH; i++) bar_init(full + i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  u64 arrival = 0;
  if (tid == 0) arrival = atomicAdd(arrivals, 1ull);
  const int groups = group_pairs(s, ids, pairs, experts);

  // ---- the copies: gate/up pieces of this CTA's tiles, then down items of its output rows
  const int tiles = groups * PAIR_TILES;
  const int tile0 = (int)((long long)tiles * cta / GRID), tile1 = (int)((long long)tiles * (cta + 1) / GRID);
  const int row0 = ROW_TILES * cta / GRID, rows = ROW_TILES * (cta + 1) / GRID - row0;
  const int items = groups * I_BLOCKS;
  int next_tile = tile0, next_piece = 0, next_item = warp;
  auto request = [&](int slot) {
    u8* dst = slots + slot * SLOT;
    if (next_tile < tile1 && pieces > 0) {
      const int e = s.expert[list][next_tile / PAIR_TILES];
      const u8* src = w13 + (((size_t)e * PAIR_TILES + next_tile % PAIR_TILES) * K_BLOCKS + kb0 + next_piece * PIECE) * (2 * BLOCK);
      const int left = kbn - next_piece * PIECE;
      const u32 bytes = (left < PIECE ? left : PIECE) * (2 * BLOCK);
      if (lane == 0) {
        bar_expect(full + slot, bytes);
        bulk_copy(dst, src, bytes, full + slot);
      }
      if (++next_piece == pieces) next_piece = 0, next_tile++;
    } else if (next_item < items) {
      const u32 bytes = rows * BLOCK;
      const int here = (items - next_item + WARPS - 1) / WARPS;
      if (lane == 0) bar_expect(full + slot, bytes * (here < ITEMS ? here : ITEMS));
#pragma unroll
      for (int i = 0; i < ITEMS; i++, next_item += WARPS)
        if (next_item < items) {
          const int e = s.expert[list][next_item / I_BLOCKS], kb = next_item % I_BLOCKS;
          const u8* src = w2 + (((size_t)e * I_BLOCKS + kb) * ROW_TILES + row0) * BLOCK;
          if (lane == 0) bulk_copy(dst + i * CTA_ROWS * BLOCK, src, bytes, full + slot);
        }
    }
  };
#pragma unroll 1
  for (int i = 0; i < DEPTH; i++) request(i);
  __syncthreads();  // the barriers of the CTA are set up

  // ---- per-pair factors; the arrival count says which launch this is
  if (warp < (PAIRS + 31) / 32) {
    const int p = tid;
    if (p < pairs) {
      const int e = MAX_M == 1 ? ids[p] : s.ids[p];
      if ((u32)e < (u32)experts) {
        s.gate_scale[p] = scale13[2 * e] * DECODE_SCALE;
        s.up_scale[p] = scale13[2 * e + 1] * DECODE_SCALE;
        s.out_scale[p] = scale2[e] * weights[p];
      }
    }
    if (tid == 0) s.epoch = (u32)(arrival / GRID) + 1;
    __syncwarp();
    if (lane == 0) bar_arrive(&s.tables);
  }

  int slot = 0;
  u32 parity = 0;
  auto advance = [&]() {
    if (++slot == DEPTH) slot = 0, parity ^= 1;
  };

  // ---- phase 1: h = silu(gate) * up of this CTA's tiles
  int group = -1, held = 0;
  u32 turn = 0;
#pragma unroll 1
  for (int tile = tile0; tile < tile1; tile++, turn ^= 1) {
    if (tile / PAIR_TILES != group) {
      group = tile / PAIR_TILES;
      if (MAX_M == 1) {
        held = 1;
      } else {
        held = s.count[group];
        load_x(s.pair[0][group * 8 + (col < held ? col : 0)] / TOPK, col < held);
      }
    }
    float gate[1][4] = {}, up[1][4] = {};
#pragma unroll
    for (int b0 = 0; b0 < WARP_BLOCKS; b0 += PIECE) {
      if (b0 < kbn) {
        bar_wait(full + slot, parity);
        const u8* base = slots + slot * SLOT;
#pragma unroll
        for (int b = b0; b < b0 + PIECE && b < WARP_BLOCKS; b++)
          if (b < kbn) {
            const u8* p = base + (b - b0) * (2 * BLOCK);
            const uint4 qg = *reinterpret_cast<const uint4*>(p + lane * 16);
            const uint4 qu = *reinterpret_cast<const uint4*>(p + 512 + lane * 16);
            const u32 sc = *reinterpret_cast<const u32*>(p + 1024 + lane * 4);
            u32 s0, s8;
            const u32(&bf)[1][8] = *reinterpret_cast<const u32(*)[1][8]>(&xf[0][b]);
            scales_of(sc, s0, s8);
            block_product<1>(qg, s0, s8, bf, gate);
            scales_of(sc >> 16, s0, s8);
            block_product<1>(qu, s0, s8, bf, up);
          }
        __syncwarp();
        request(slot);
        advance();
      }
    }
    // the warps' partial sums meet in shared memory; one warp a token adds them up
    bar_wait(&s.sums_empty, turn ^ 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int c = quad * 2 + i;
      if (c < GROUP && c < held) {
        float* p = s.partial + (warp * GROUP + c) * 32 + col;
        p[0] = gate[0][i], p[8] = gate[0][2 + i], p[16] = up[0][i], p[24] = up[0][2 + i];
      }
    }
    __syncwarp();
    if (lane == 0) bar_arrive(&s.sums_full);
    const int c = (warp - tile) & (WARPS - 1);
    if (c < held) {
      bar_wait(&s.tables, 0);
      bar_wait(&s.sums_full, turn);
      float v = 0.f;
#pragma unroll
      for (int w = 0; w < WARPS; w++) v += s.partial[(w * GROUP + c) * 32 + lane];
      const int p = MAX_M == 1 ? s.pair[list][group] : s.pair[0][group * 8 + c];
      v *= lane < 16 ? s.gate_scale[p] : s.up_scale[p];
      const float u = __shfl_down_sync(~0u, v, 16);
      const float h = v / (1.f + __expf(-v)) * u * s.out_scale[p];
      const size_t unit = (size_t)p * PAIR_TILES + tile % PAIR_TILES;
      if (HTERMS == 2) {
        const u32 hi = pack_bf16(h, 0.f);
        const float rest = h - __uint_as_float(hi << 16);
        if (lane < 16) store_word(exchange + unit * 16 + lane, hi & 0xFFFFu | pack_bf16(0.f, rest) & 0xFFFF0000u, s.epoch);
      } else {
        const float odd = __shfl_down_sync(~0u, h, 1);
        if (lane < 16 && !(lane & 1)) store_word(exchange + unit * 8 + lane / 2, pack_bf16(h, odd), s.epoch);
      }
    }
    __syncwarp();
    if (lane == 0) bar_arrive(&s.sums_empty);
  }

  // ---- phase 2: this CTA's output rows, over all experts hit; a word of h carries the launch's number,
  // so that data and readiness arrive together
  constexpr int LOADS = HTERMS == 2 ? 8 : 4;
  ulonglong2 hv[N_TILES][LOADS];
  bar_wait(&s.tables, 0);
  const u32 epoch = s.epoch;
  auto source = [&](int item, int n) -> const u64* {
    const int token = (n * 8 + col) / HTERMS;
    u32 p = NONE;
    if (token < tokens) p = MAX_M == 1 ? s.pair[list][item / I_BLOCKS] : s.column[item / I_BLOCKS * MAX_M + token];
    if (p == NONE) return nullptr;
    return exchange + ((size_t)p * PAIR_TILES + item % I_BLOCKS * 4 + quad) * (HTERMS == 2 ? 16 : 8);
  };
  auto fetch = [&](int item) {
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
      const u64* p = source(item, n);
#pragma unroll
      for (int i = 0; i < LOADS; i++) {
        hv[n][i] = make_ulonglong2((u64)epoch << 32, (u64)epoch << 32);
        if (p) hv[n][i] = load_pair(p + 2 * i);
      }
    }
  };
  auto ready = [&]() {
    bool ok = true;
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
      for (int i = 0; i < LOADS; i++) ok = ok && (u32)(hv[n][i].x >> 32) == epoch && (u32)(hv[n][i].y >> 32) == epoch;
    return __all_sync(~0u, ok);
  };
  float acc[CTA_ROWS][N_TILES][4] = {};
  if (warp < items) fetch(warp);
#pragma unroll 1
  for (int item0 = warp; item0 < items; item0 += WARPS * ITEMS) {
    bar_wait(full + slot, parity);
    const u8* base = slots + slot * SLOT;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const int item = item0 + i * WARPS;
      if (item < items) {
        while (!ready()) fetch(item);
        u32 b[N_TILES][8];
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
          for (int j = 0; j < 8; j++) {
            if (HTERMS == 2)
              b[n][j] = __byte_perm((u32)hv[n][j].x, (u32)hv[n][j].y, col & 1 ? 0x7632 : 0x5410);
            else
              b[n][j] = (u32)(j & 1 ? hv[n][j / 2].y : hv[n][j / 2].x);
          }
        if (item + WARPS < items) fetch(item + WARPS);
#pragma unroll
        for (int r = 0; r < CTA_ROWS; r++)
          if (r < rows) {
            const u8* p = base + (i * CTA_ROWS + r) * BLOCK;
            const uint4 q = *reinterpret_cast<const uint4*>(p + lane * 16);
            u32 s0, s8;
            scales_of(*reinterpret_cast<const u16*>(p + 512 + lane * 2), s0, s8);
            block_product<N_TILES>(q, s0, s8, b, acc[r]);
          }
      }
    }
    __syncwarp();
    request(slot);
    advance();
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
        if (c < COLS) sum[(warp * N_TILES * 8 + c) * SUM_STRIDE + r * 16 + col + (i >> 1) * 8] = acc[r][n][i];
      }
  __syncthreads();
#pragma unroll 1
  for (int o = tid; o < tokens * rows * 16; o += WARPS * 32) {
    const int token = o / (rows * 16), r = o % (rows * 16);
    float v = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
#pragma unroll
      for (int k = 0; k < HTERMS; k++) v += sum[(w * N_TILES * 8 + token * HTERMS + k) * SUM_STRIDE + r];
    out[(size_t)token * HIDDEN + row0 * 16 + r] = (u16)pack_bf16(v * DECODE_SCALE, 0.f);
  }
}
