/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "instantiates templates without end"
expect = "structural"
says = "template"
*/
template <long N>
struct More {
    static constexpr long value = More<N + 1>::value;
};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    y[0] = More<0>::value;
}
