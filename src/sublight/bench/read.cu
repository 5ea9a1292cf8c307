// The read floor: one launch that reads n 16-byte words and does nothing else with them. Four loads of a thread are in
// flight before the first is used; the sum is written only if it is a value that random bytes do not give, so that no
// store is paid for and no load can be left out.
extern "C" __global__ void __launch_bounds__(512, 3)
read_only(const uint4 *__restrict__ from, unsigned long long n, unsigned *sink) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (; i + 3 * step < n; i += 4 * step) {
    uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
  }
  for (; i < n; i += step) {
    uint4 a = from[i];
    sum += a.x ^ a.y ^ a.z ^ a.w;
  }
  if (sum == 0x9e3779b9u && from[0].x == 0x9e3779b9u) *sink = sum;
}
