// Asynchronous copies: nothing arrives before it is waited for.
#pragma once

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0, EVO_LINE) {
    if (bytes != 4 && bytes != 8 && bytes != 16) evo::fail("line %d: an asynchronous copy of %zu bytes; 4, 8 or 16 are possible", line, bytes);
    if (reinterpret_cast<std::uintptr_t>(to) % bytes || reinterpret_cast<std::uintptr_t>(from) % bytes)
        evo::fail("line %d: an asynchronous copy of %zu bytes from or to a place that is no multiple of it", line, bytes);
    evo::copy_later(to, from, bytes, zeros);
}
inline void __pipeline_commit() { evo::commit_copies(); }
inline void __pipeline_wait_prior(std::size_t newest) { evo::await_copies(newest); }
