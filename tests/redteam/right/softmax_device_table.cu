/*! evo
[[launch]]
kernel = "softmax"
grid = ["rows"]
block = [64]
args = ["x", "y", "cols"]
*/
/* redteam
operator = "softmax"
what = "an exponential of its own, from a table in the memory of the device and a polynomial, with assertions"
*/
__device__ const float POWERS[32] = {
    1.0f, 1.02189715f, 1.04427378f, 1.0671404f, 1.09050773f, 1.11438674f, 1.13878863f, 1.16372486f, 1.18920712f,
    1.21524736f, 1.24185781f, 1.26905096f, 1.29683955f, 1.32523664f, 1.35425555f, 1.38390988f, 1.41421356f,
    1.44518081f, 1.47682615f, 1.50916443f, 1.54221083f, 1.57598085f, 1.61049033f, 1.64575548f, 1.68179283f,
    1.7186193f, 1.75625216f, 1.79470908f, 1.83400809f, 1.87416763f, 1.91520656f, 1.95714412f};

#include <cassert>
__device__ float exponential(float v) {
    if (!(v > -100)) return v != v ? v : 0;
    const float n = rintf(v * 46.1662413f);  // 32 / ln 2
    const float r = fmaf(n, -4.9114312e-8f, fmaf(n, -0.0216608f, v));
    const int whole = int(n);
    assert(whole <= 0);
    const float p = fmaf(fmaf(fmaf(r, 1.0f / 24, 1.0f / 6), r, 0.5f), r * r, r);
    const float power = POWERS[whole & 31];
    return ldexpf(fmaf(power, p, power), whole >> 5);
}

__device__ float over_block(float value, bool largest) {
    __shared__ float part[64];
    __syncthreads();
    part[threadIdx.x] = value;
    __syncthreads();
    float found = part[0];
    for (int t = 1; t < 64; t++)
        found = !largest ? found + part[t] : part[t] > found || part[t] != part[t] ? part[t] : found;
    return found;
}

extern "C" __global__ void softmax(const T* x, T* y, int cols) {
    const T* in = x + (long long)blockIdx.x * cols;
    T* out = y + (long long)blockIdx.x * cols;
    float largest = load(in[0]), sum = 0;
    for (int c = threadIdx.x; c < cols; c += 64) {
        const float value = load(in[c]);
        if (value > largest || value != value) largest = value;
    }
    largest = over_block(largest, true);
    for (int c = threadIdx.x; c < cols; c += 64) sum += exponential(load(in[c]) - largest);
    sum = over_block(sum, false);
    for (int c = threadIdx.x; c < cols; c += 64) out[c] = store(exponential(load(in[c]) - largest) / sum);
}
