// The kernel against the fp64 reference, on the stored cases: every element within the error that is allowed in it.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases.hpp"
#include "test_memory.hpp"

namespace {

std::size_t element_bytes(const std::string& dtype) {
    if (dtype == "fp64" || dtype == "int64") return 8;
    if (dtype == "fp32" || dtype == "int32") return 4;
    return dtype == "fp16" || dtype == "bf16" ? 2 : 1;
}

template <class X>
X read(const char* at) {
    X value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

double half(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31  ? (fraction ? std::nan("") : std::numeric_limits<double>::infinity())
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

double number(const std::string& dtype, const char* at) {
    if (dtype == "fp64") return read<double>(at);
    if (dtype == "fp32") return read<float>(at);
    if (dtype == "fp16") return half(read<std::uint16_t>(at));
    if (dtype == "bf16") {
        const std::uint32_t bits = std::uint32_t{read<std::uint16_t>(at)} << 16;
        return read<float>(reinterpret_cast<const char*>(&bits));
    }
    if (dtype == "int64") return static_cast<double>(read<std::int64_t>(at));
    if (dtype == "int32") return read<std::int32_t>(at);
    return dtype == "int8" ? read<std::int8_t>(at) : read<std::uint8_t>(at);
}

double word(std::size_t bytes, const char* at) {
    if (bytes == 4) return read<std::int32_t>(at);
    return bytes == 2 ? read<std::int16_t>(at) : read<std::int8_t>(at);
}

// An output as the reference has it: its elements, or its bits as words of 32 at most.
std::vector<double> numbers(const std::string& dtype, const std::vector<char>& data) {
    const std::size_t size = element_bytes(dtype), step = cases::BITS && size > 4 ? 4 : size;
    std::vector<double> made;
    for (std::size_t at = 0; at < data.size(); at += step) {
        made.push_back(cases::BITS ? word(step, &data[at]) : number(dtype, &data[at]));
    }
    return made;
}

// The largest error as a multiple of what is allowed.
double worst(const std::vector<double>& found, const char* expected, const char* allowed) {
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double right = read<double>(expected + 8 * i), error = std::fabs(found[i] - right);
        if (found[i] == right || (std::isnan(found[i]) && std::isnan(right))) continue;
        const double ratio = error / read<double>(allowed + 8 * i);
        largest = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::fmax(largest, ratio);
        if (std::isinf(largest)) break;
    }
    return largest;
}

double worst_of(const cases::Case& each, const std::vector<char>& data, TestKernel& kernel) {
    std::vector<TestMemory> memory;
    std::vector<void*> at;
    for (std::size_t t = 0; t < cases::TENSORS.size(); ++t) {
        const auto elements = static_cast<std::size_t>(each.arrays[t].elements);
        memory.emplace_back(elements * element_bytes(cases::TENSORS[t].dtype));
        if (each.arrays[t].input >= 0) memory.back().write(&data.at(static_cast<std::size_t>(each.arrays[t].input)));
        at.push_back(memory.back().address());
    }
    kernel(each.dims, cases::tensors(at));
    double largest = 0;
    for (std::size_t t = 0; t < cases::TENSORS.size(); ++t) {
        const cases::Array& array = each.arrays[t];
        if (array.expected < 0) continue;
        const std::vector<double> found = numbers(cases::TENSORS[t].dtype, memory[t].read());
        largest = std::fmax(largest, worst(found, &data.at(static_cast<std::size_t>(array.expected)),
                                           &data.at(static_cast<std::size_t>(array.allowed))));
    }
    return largest;
}

int test(const std::vector<std::string>& arguments) {
    std::ifstream stream(arguments.back(), std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (data.empty()) throw std::runtime_error(arguments.back() + ": cannot be read");
    TestKernel kernel(arguments);
    int failed = 0;
    for (const cases::Case& each : cases::CASES) {
        const double error = worst_of(each, data, kernel);
        failed += error <= 1 ? 0 : 1;
        std::printf("%s: worst error %.3g of what is allowed%s\n", each.name, error, error <= 1 ? "" : ": WRONG");
    }
    return failed == 0 && !cases::CASES.empty() ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    const std::vector<std::string> arguments(words + 1, words + count);
    if (arguments.size() != TestKernel::ARGUMENTS) {
        std::fprintf(stderr, "usage: %s %s\n", words[0], TestKernel::USAGE);
        return 2;
    }
    try {
        return test(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
