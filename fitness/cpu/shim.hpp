// Follows every candidate's source: makes each launch of the plan callable with untyped arguments, and leaves a table
// of its parameters in the object file, where it is read without running anything.
namespace evo_shim {
struct Param {
    int kind;  // 0 integer, 1 floating point, 2 pointer, 3 anything else
    int size;
    int pointee_kind;
    int pointee_size;
    int pointee_const;
};
template <int COUNT>
struct Table {
    int count = COUNT;
    Param params[COUNT + 1] = {};
};
template <class X>
constexpr int kind_of() {
    if constexpr (std::is_pointer_v<X>) return 2;
    else if constexpr (std::is_floating_point_v<X>) return 1;
    else if constexpr (std::is_integral_v<X> || std::is_enum_v<X>) return 0;
    else return 3;
}
template <class X>
constexpr Param describe() {
    if constexpr (std::is_pointer_v<X>) {
        using P = std::remove_pointer_t<X>;
        if constexpr (std::is_void_v<P>) return {2, sizeof(X), 3, 0, std::is_const_v<P>};
        else return {2, sizeof(X), kind_of<std::remove_cv_t<P>>(), sizeof(P), std::is_const_v<P>};
    } else {
        return {kind_of<X>(), sizeof(X), 3, 0, 0};
    }
}
template <class R, class... A>
constexpr auto parameters(R (*)(A...)) {
    return Table<sizeof...(A)>{sizeof...(A), {describe<std::remove_cv_t<std::remove_reference_t<A>>>()..., {}}};
}
template <class R, class... A, std::size_t... I>
inline void call(R (*function)(A...), void* const* values, std::index_sequence<I...>) {
    function(*static_cast<std::remove_cv_t<std::remove_reference_t<A>>*>(values[I])...);
}
template <class R, class... A>
inline void call(R (*function)(A...), void* const* values) {
    call(function, values, std::index_sequence_for<A...>{});
}
}  // namespace evo_shim
#define EVO_LAUNCH(NUMBER, ...)                                                             \
    extern "C" {                                                                            \
    extern const decltype(evo_shim::parameters(&__VA_ARGS__)) evo_params_##NUMBER;          \
    __attribute__((used)) const decltype(evo_shim::parameters(&__VA_ARGS__))                \
        evo_params_##NUMBER = evo_shim::parameters(&__VA_ARGS__);                           \
    __attribute__((used, visibility("default"))) void evo_launch_##NUMBER(void* const* values) { \
        evo_shim::call(&__VA_ARGS__, values);                                               \
    }                                                                                       \
    }
