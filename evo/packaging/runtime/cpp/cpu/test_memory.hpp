// Memory and calls of test_kernel.cpp, on a processor.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cases.hpp"

class TestMemory {
public:
    explicit TestMemory(std::size_t bytes) : bytes_(bytes), data_(std::aligned_alloc(64, (bytes / 64 + 1) * 64), std::free) {
        std::memset(data_.get(), 0x7b, bytes);
    }
    void write(const char* from) { std::memcpy(data_.get(), from, bytes_); }
    std::vector<char> read() const {
        const char* begin = static_cast<const char*>(data_.get());
        return {begin, begin + bytes_};
    }
    void* address() const { return data_.get(); }

private:
    std::size_t bytes_;
    std::shared_ptr<void> data_;
};

class TestKernel {
public:
    static constexpr std::size_t ARGUMENTS = 1;
    static constexpr const char* USAGE = "cases.bin";
    explicit TestKernel(const std::vector<std::string>&) {}
    void operator()(const cases::kernel::Dims& dims, const cases::kernel::Tensors& tensors) {
        cases::kernel::run(dims, tensors);
    }
};
