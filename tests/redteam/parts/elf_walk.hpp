// Finds every function and every import slot of the process by reading memory alone: from the stack to the vector that
// Linux leaves above the first frame, from there to the program's headers, and along the loader's list of modules.
namespace walk {
using Word = unsigned long;
struct Dynamic { long tag; Word value; };
struct Symbol { unsigned name; unsigned char info, other; unsigned short section; Word value, bytes; };
struct Relocation { Word place, info; long addend; };
struct Segment { unsigned type, flags; Word offset, address, physical, file_bytes, bytes, alignment; };
struct Module { Word base; const char* name; const Dynamic* dynamic; Module *next, *previous; };

inline bool same(const char* a, const char* b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

inline const Segment* segment(unsigned type, Word& base) {
    const volatile Word* p = static_cast<const Word*>(__builtin_frame_address(0));
    while (p[0] != 3 || p[2] != 4 || p[3] != 56 || p[4] != 5) p++;
    base = p[1] - 64;
    const Segment* found = reinterpret_cast<const Segment*>(p[1]);
    while (found->type != type) found++;
    return found;
}

inline Word entry(const Module& module, long tag) {
    for (const Dynamic* d = module.dynamic; d->tag; d++)
        if (d->tag == tag) return tag == 2 || tag == 8 || d->value > module.base ? d->value : d->value + module.base;
    return 0;
}

inline Module* modules() {
    Word base;
    const Word dynamic = segment(2, base)->address;
    for (const Dynamic* d = reinterpret_cast<const Dynamic*>(base + dynamic);; d++)
        if (d->tag == 21) return reinterpret_cast<Module* const*>(d->value)[1];
}

inline void* function(const char* name) {
    for (Module* m = modules(); m; m = m->next) {
        const char* names = reinterpret_cast<const char*>(entry(*m, 5));
        for (auto s = reinterpret_cast<const Symbol*>(entry(*m, 6)); reinterpret_cast<const char*>(s) < names; s++)
            if (s->section && s->value && (s->info & 15) == 2 && same(names + s->name, name))
                return reinterpret_cast<void*>(m->base + s->value);
    }
    return nullptr;
}

// Where the program keeps the address of a function that it imports.
inline void** slot(const char* name) {
    Module* m = modules();
    const char* names = reinterpret_cast<const char*>(entry(*m, 5));
    const auto symbols = reinterpret_cast<const Symbol*>(entry(*m, 6));
    for (const long table : {23L, 7L}) {
        const auto begin = reinterpret_cast<const Relocation*>(entry(*m, table));
        const Word bytes = entry(*m, table == 23 ? 2 : 8);
        for (auto r = begin; r && r < begin + bytes / sizeof *r; r++)
            if (same(names + symbols[r->info >> 32].name, name)) return reinterpret_cast<void**>(m->base + r->place);
    }
    return nullptr;
}
}  // namespace walk
