// Maps a candidate's linked object by the orders of fitness/cpu/image.py, whoever then calls into it: the only way by
// which code of a candidate comes into a process. Nothing of it runs here, and nothing in it is believed. An order that
// does not fit is an error of ours; whatever it was, nothing has run either.
#pragma once
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace image {

using Word = std::int64_t;
using Launch = void (*)(void* const*);
struct Mapped {
    std::vector<Launch> launches;
    std::string problem;  // why there are none
};

// The orders: [bytes, alignment, sealed, segments, (address, bytes, file offset, file bytes, protection) * segments,
// imports, (bytes, name padded) * imports, relocations, (address, import or -1, addend) * relocations,
// launches, address * launches].
inline Mapped map(const Word* p, int file) {
    const auto failed = [](const std::string& problem) { return Mapped{{}, problem}; };
    const auto take = [&] { return static_cast<std::size_t>(*p++); };
    const std::size_t bytes = take(), alignment = take(), sealed = take(), page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* reserved = mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return failed("cannot reserve address space for the kernel");
    char* const base = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(reserved) + alignment - 1) / alignment * alignment);
    char *written = nullptr, *written_end = nullptr;
    for (std::size_t count = take(); count > 0; --count) {
        char* const begin = base + take();
        char* const end = begin + take();
        const std::size_t offset = take();
        char* const file_end = begin + take();
        const int protection = static_cast<int>(take());
        const std::size_t before = static_cast<std::size_t>(begin - base) % page;
        char* const first = begin - before;
        const auto up = [&](char* address) { return base + (static_cast<std::size_t>(address - base) + page - 1) / page * page; };
        if (begin < base || end > base + bytes || file_end > end) return failed("a segment of the kernel does not fit");
        if (file_end > begin && mmap(first, static_cast<std::size_t>(file_end - first), protection, MAP_PRIVATE | MAP_FIXED,
                                     file, static_cast<off_t>(offset - before)) == MAP_FAILED)
            return failed("cannot map a segment of the kernel");
        if (!(protection & PROT_WRITE)) continue;
        written = first;
        written_end = up(end);
        char* const zeros = file_end > begin ? up(file_end) : first;
        if (zeros < written_end && mmap(zeros, static_cast<std::size_t>(written_end - zeros), protection,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            return failed("cannot map a segment of the kernel");
        if (file_end > begin && file_end < zeros) std::memset(file_end, 0, static_cast<std::size_t>(zeros - file_end));
    }
    std::vector<char*> imports;
    for (std::size_t count = take(); count > 0; --count) {
        const std::size_t length = take();
        const std::string name(reinterpret_cast<const char*>(p), length);
        p += (length + 7) / 8;
        imports.push_back(static_cast<char*>(dlsym(RTLD_DEFAULT, name.c_str())));
        if (!imports.back()) return failed("this machine's libraries lack " + name);
    }
    for (std::size_t count = take(); count > 0; --count) {
        char* const place = base + take();
        const auto import = static_cast<Word>(take());
        char* const value = (import < 0 ? base : imports.at(static_cast<std::size_t>(import))) + take();
        if (place < written || place + sizeof value > written_end) return failed("a relocation of the kernel does not fit");
        std::memcpy(place, &value, sizeof value);
    }
    if (base + sealed > written && written)
        mprotect(written, static_cast<std::size_t>(base + sealed - written), PROT_READ);
    Mapped mapped;
    for (std::size_t count = take(); count > 0; --count) mapped.launches.push_back(reinterpret_cast<Launch>(base + take()));
    return mapped;
}

}  // namespace image
