/*! evo
[tune]
BLOCK = [128, 32, 64, 256]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[buffer]]
name = "scores"
dtype = "ACC"
shape = ["queries", "keys"]

[[launch]]
kernel = "products"
grid = ["ceil_div(keys, BLOCK_X)", "ceil_div(queries, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["q", "k", "scores", "queries", "keys", "dim"]

[[launch]]
kernel = "softmax"
grid = ["ceil_div(queries, BLOCK)"]
block = ["BLOCK"]
args = ["scores", "queries", "keys"]

[[launch]]
kernel = "averages"
grid = ["ceil_div(width, BLOCK_X)", "ceil_div(queries, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["scores", "v", "y", "queries", "keys", "width"]
*/

// One thread per score.
extern "C" __global__ void products(const T* q, const T* k, ACC* scores, int queries, int keys, int dim) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= queries || j >= keys) return;
    ACC sum = 0;
    for (int l = 0; l < dim; l++) sum += load(q[(long long)i * dim + l]) * load(k[(long long)j * dim + l]);
    scores[(long long)i * keys + j] = sum / sqrtf(ACC(dim));
}

// One thread per query.
extern "C" __global__ void softmax(ACC* scores, int queries, int keys) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= queries) return;
    ACC* row = scores + (long long)i * keys;
    ACC largest = row[0];
    for (int j = 1; j < keys; j++) largest = row[j] > largest ? row[j] : largest;
    ACC sum = 0;
    for (int j = 0; j < keys; j++) sum += row[j] = expf(row[j] - largest);
    for (int j = 0; j < keys; j++) row[j] /= sum;
}

// One thread per element of the result.
extern "C" __global__ void averages(const ACC* scores, const T* v, T* y, int queries, int keys, int width) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= queries || j >= width) return;
    ACC sum = 0;
    for (int l = 0; l < keys; l++) sum += scores[(long long)i * keys + l] * load(v[(long long)l * width + j]);
    y[(long long)i * width + j] = store(sum);
}
