/*! evo
[[buffer]]
name = "s0"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s1"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s2"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s3"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s4"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s5"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s6"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s7"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s8"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s9"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s10"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s11"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s12"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s13"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s14"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s15"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s16"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s17"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s18"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s19"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s20"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s21"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s22"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s23"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s24"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s25"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s26"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s27"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s28"
dtype = "fp32"
shape = [1024, "8 * n"]
[[buffer]]
name = "s29"
dtype = "fp32"
shape = [1024, "8 * n"]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks for it in many buffers that grow with the shape"
expect = "structural"
says = "its buffers take"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
