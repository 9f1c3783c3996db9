// What the launcher of a kernel asks of the CUDA driver.
// Apache-2.0, see LICENSE. Everything is local to the file that includes it, so that several kernels fit in a program.
#pragma once
#include <cuda.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "plan.hpp"

namespace {
namespace evo_plan {

inline void driver(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    throw std::runtime_error(std::string(call) + ": " + (name ? name : "unknown error") + (text ? std::string(": ") + text : ""));
}

inline std::vector<char> contents(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw std::runtime_error(file + ": cannot be read");
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// What formulas may know of a GPU.
struct Facts {
    long long sm_count = 0, warp_size = 0, max_shared_bytes = 0, l2_bytes = 0;
};

inline int attribute(CUdevice device, CUdevice_attribute which) {
    int number = 0;
    driver(cuDeviceGetAttribute(&number, which, device), "cuDeviceGetAttribute");
    return number;
}

// While one lives, its thread may allocate and wait although a stream is being captured; none of that is captured.
class BesideCaptures {
public:
    BesideCaptures() { driver(cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode"); }
    ~BesideCaptures() { cuThreadExchangeStreamCaptureMode(&mode_); }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;

private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Descriptors of tensor maps in the GPU's memory, where kernels find them. None is overwritten, or freed before all are,
// as launches that wait and CUDA graphs go on using them: each distinct one takes 128 bytes.
class Descriptors {
public:
    Descriptors() = default;
    ~Descriptors() {
        for (const CUdeviceptr chunk : chunks_) cuMemFree(chunk);
        if (stream_) cuStreamDestroy(stream_);
    }
    Descriptors(const Descriptors&) = delete;
    Descriptors& operator=(const Descriptors&) = delete;

    // Where the descriptor lies, to which it is copied first if it is new.
    CUdeviceptr address(const CUtensorMap& descriptor) {
        const std::string bytes(reinterpret_cast<const char*>(&descriptor), sizeof descriptor);
        const std::lock_guard<std::mutex> alone(mutex_);
        const auto known = addresses_.find(bytes);
        if (known != addresses_.end()) return known->second;
        const BesideCaptures beside;
        return addresses_.emplace(bytes, copied(descriptor)).first->second;
    }

private:
    static constexpr std::size_t CHUNK = 512;  // as many are allocated at a time
    CUdeviceptr copied(const CUtensorMap& descriptor) {
        if (!stream_) driver(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        if (addresses_.size() == CHUNK * chunks_.size()) {
            CUdeviceptr chunk = 0;
            driver(cuMemAlloc(&chunk, CHUNK * sizeof descriptor), "cuMemAlloc");
            chunks_.push_back(chunk);
        }
        const CUdeviceptr place = chunks_.back() + addresses_.size() % CHUNK * sizeof descriptor;
        driver(cuMemcpyHtoDAsync(place, &descriptor, sizeof descriptor, stream_), "cuMemcpyHtoDAsync");
        driver(cuStreamSynchronize(stream_), "cuStreamSynchronize");
        return place;
    }
    std::mutex mutex_;
    std::map<std::string, CUdeviceptr> addresses_;
    std::vector<CUdeviceptr> chunks_;
    CUstream stream_ = nullptr;
};

// The code in a context, with the kernels in the order of their symbols.
class Module {
public:
    Module(const void* image, std::initializer_list<const char*> symbols) : Module(std::vector<CUfunction>()) {
        driver(cuModuleLoadData(&module_, image), "cuModuleLoadData (code for another architecture? build kernel.cu for it)");
        // The destructor unloads it: this constructor hands on to another, after which the object counts as made.
        for (const char* symbol : symbols) {
            CUfunction function = nullptr;
            driver(cuModuleGetFunction(&function, module_, symbol), symbol);
            add(function);
        }
    }
    explicit Module(const std::vector<CUfunction>& compiled) {
        CUdevice device = 0;
        driver(cuCtxGetDevice(&device), "cuCtxGetDevice (a context must be current: cudaSetDevice makes one so)");
        facts.sm_count = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        facts.warp_size = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
        facts.max_shared_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        facts.l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
        for (CUfunction function : compiled) add(function);
    }
    ~Module() {
        if (module_) cuModuleUnload(module_);
    }
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    Facts facts;
    std::vector<CUfunction> functions;
    mutable Descriptors descriptors;

private:
    void add(CUfunction function) {
        int fixed = 0;
        driver(cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function), "cuFuncGetAttribute");
        const int most_bytes = std::max(static_cast<int>(facts.max_shared_bytes) - fixed, 0);
        driver(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most_bytes), "cuFuncSetAttribute");
        functions.push_back(function);
    }
    CUmodule module_ = nullptr;
};

// --- launches ----------------------------------------------------------------------------------------------------------

struct Axes {
    unsigned x = 1, y = 1, z = 1;
    long long product() const { return static_cast<long long>(x) * y * z; }
};

struct Call {
    std::size_t kernel = 0;
    Axes grid, block;
    Axes cluster;
    bool has_cluster = false, cooperative = false, asks_occupancy = false;
    bool overlap = false;  // it may begin before the launch ahead of it has ended
    unsigned shared_bytes = 0;
    Arguments arguments;
};

template <class F>
unsigned axis(const char* what, const F& formula, long long largest) {
    return static_cast<unsigned>(within(what, formula, 1, largest));
}
inline void check_block(const char* what, const Axes& block) {
    if (block.product() > 1024) fail(std::string(what) + ": a block has at most 1024 threads");
}
inline void check_cluster(const char* what, const Axes& cluster, const Axes& grid) {
    if (cluster.product() > 8) fail(std::string(what) + ": a cluster has at most 8 blocks");
    if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
        fail(std::string(what) + ": the grid is not a multiple of the cluster");
    }
}

inline void start(Call& call, CUfunction function, CUstream stream) {
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config = {};
    config.gridDimX = call.grid.x, config.gridDimY = call.grid.y, config.gridDimZ = call.grid.z;
    config.blockDimX = call.block.x, config.blockDimY = call.block.y, config.blockDimZ = call.block.z;
    config.sharedMemBytes = call.shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    if (call.has_cluster) {
        CUlaunchAttribute& attribute = attributes[config.numAttrs++] = {};
        attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim.x = call.cluster.x;
        attribute.value.clusterDim.y = call.cluster.y;
        attribute.value.clusterDim.z = call.cluster.z;
    }
    if (call.cooperative) {
        CUlaunchAttribute& attribute = attributes[config.numAttrs++] = {};
        attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute.value.cooperative = 1;
    }
    if (call.overlap) {
        CUlaunchAttribute& attribute = attributes[config.numAttrs++] = {};
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    std::vector<void*> arguments = call.arguments.pointers();
    driver(cuLaunchKernelEx(&config, function, arguments.data(), nullptr), "cuLaunchKernelEx");
}

// How many blocks of each kernel that asks for it a multiprocessor holds at a time: the fewest of all its launches.
inline std::vector<long long> occupancy(const std::vector<Call>& calls, const std::vector<CUfunction>& functions) {
    std::vector<long long> found(functions.size(), 0);
    for (const Call& call : calls) {
        if (!call.asks_occupancy) continue;
        int blocks = 0;
        driver(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, functions[call.kernel],
                                                           static_cast<int>(call.block.product()), call.shared_bytes),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor");
        if (blocks == 0) fail("no block of the kernel fits onto a multiprocessor of this GPU");
        long long& known = found[call.kernel];
        known = known == 0 ? blocks : std::min<long long>(known, blocks);
    }
    for (long long& each : found) each = std::max(each, 1LL);
    return found;
}

inline void clear(const Extent& extent, CUstream stream) {
    if (extent.bytes > 0) driver(cuMemsetD8Async(extent.address, 0, static_cast<std::size_t>(extent.bytes), stream), "cuMemsetD8Async");
}

// --- tensor maps -------------------------------------------------------------------------------------------------------

struct MapKind {
    const char* name;
    CUtensorMapDataType type;
    long long element_bytes;
    CUtensorMapSwizzle swizzle;
    long long swizzle_bytes;  // the box is at most so wide; 0: any
    CUtensorMapL2promotion l2_promotion;
    CUtensorMapFloatOOBfill oob_fill;
};

inline void check_axes(const std::string& what, const std::vector<long long>& sizes, long long largest) {
    for (const long long size : sizes) {
        if (size < 1 || size > largest) fail(what + " " + std::to_string(size) + "; allowed are 1 to " + std::to_string(largest));
    }
}

// Sizes in elements, the contiguous axis first; strides in bytes for all axes but the first, none where it is dense.
inline CUtensorMap tensor_map(const MapKind& kind, const Extent& of, const std::vector<long long>& shape,
                              std::vector<long long> strides, const std::vector<long long>& box,
                              std::vector<long long> element_strides) {
    const std::string what = std::string("tensor_map `") + kind.name + "`:";
    const std::size_t rank = shape.size();
    if (element_strides.empty()) element_strides.assign(rank, 1);
    check_axes(what + " shape", shape, 1LL << 32);
    check_axes(what + " box", box, 256);
    check_axes(what + " element stride", element_strides, 8);
    if (strides.empty()) {
        long long stride = kind.element_bytes;
        for (std::size_t axis = 0; axis + 1 < rank; ++axis) strides.push_back(stride = mul(stride, shape[axis]));
    }
    long long extent = mul(shape[0], kind.element_bytes);
    for (std::size_t axis = 0; axis + 1 < rank; ++axis) {
        const long long stride = strides[axis];
        if (stride % 16 != 0 || stride <= 0 || stride >= 1LL << 40) fail(what + " stride " + std::to_string(stride) + " bytes");
        extent = add(extent, mul(shape[axis + 1] - 1, stride));
    }
    if (extent > of.bytes) fail(what + " spans " + std::to_string(extent) + " bytes, more than " + of.name + " has");
    const long long width = box[0] * kind.element_bytes;
    if (width % 16 != 0 || (kind.swizzle_bytes != 0 && width > kind.swizzle_bytes)) {
        fail(what + " box of " + std::to_string(width) + " bytes along the first axis");
    }
    cuuint64_t sizes[5] = {}, steps[5] = {};
    cuuint32_t boxes[5] = {}, each[5] = {};
    for (std::size_t axis = 0; axis < rank; ++axis) {
        sizes[axis] = static_cast<cuuint64_t>(shape[axis]);
        steps[axis] = axis + 1 < rank ? static_cast<cuuint64_t>(strides[axis]) : 0;
        boxes[axis] = static_cast<cuuint32_t>(box[axis]);
        each[axis] = static_cast<cuuint32_t>(element_strides[axis]);
    }
    CUtensorMap made;
    driver(cuTensorMapEncodeTiled(&made, kind.type, static_cast<cuuint32_t>(rank), reinterpret_cast<void*>(of.address), sizes,
                                  steps, boxes, each, CU_TENSOR_MAP_INTERLEAVE_NONE, kind.swizzle, kind.l2_promotion,
                                  kind.oob_fill),
           "cuTensorMapEncodeTiled");
    return made;
}

// Where a descriptor lies, which is made when a launch first asks for it, and not again.
template <class F>
class Map {
public:
    explicit Map(const F& make) : make_(make) {}
    CUdeviceptr operator()() {
        if (address_ == 0) address_ = make_();
        return address_;
    }

private:
    F make_;
    CUdeviceptr address_ = 0;
};

}  // namespace evo_plan
}  // namespace
