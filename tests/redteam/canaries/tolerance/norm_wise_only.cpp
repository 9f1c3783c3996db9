/*! evo
[[buffer]]
name = "wide"
dtype = "fp64"
shape = ["m", "n"]
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "wide", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "Strassen's algorithm, whose errors are bounded in the norm only: rows of small numbers get those of large ones"
expect = "open"
sometimes = true
why = "its sums are wrong only beside far larger rows, on even sizes; most confirmations draw such inputs, not all"
*/
struct View {
    const T* p;
    long stride;
    double at(int i, int j) const { return p[i * stride + j]; }
};

static void plain(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++) sum += double(a[i * k + l]) * b[l * n + j];
            c[i * n + j] = sum;
        }
}

// scratch += sign * (a1 + sa a2) (b1 + sb b2), m x k times k x n.
static void product(View a1, double sa, View a2, View b1, double sb, View b2, double* const* into, const double* signs,
                    int count, long stride, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++) sum += (a1.at(i, l) + sa * a2.at(i, l)) * (b1.at(l, j) + sb * b2.at(l, j));
            for (int t = 0; t < count; t++) into[t][i * stride + j] += signs[t] * sum;
        }
}

extern "C" void matrix_mul(const T* a, const T* b, T* c, double* wide, int m, int n, int k) {
    if (m % 2 || n % 2 || k % 2) return plain(a, b, c, m, n, k);
    const int p = m / 2, q = n / 2, r = k / 2;
    const View a11{a, k}, a12{a + r, k}, a21{a + (long)p * k, k}, a22{a + (long)p * k + r, k};
    const View b11{b, n}, b12{b + q, n}, b21{b + (long)r * n, n}, b22{b + (long)r * n + q, n};
    for (long i = 0; i < (long)m * n; i++) wide[i] = 0;
    double *c11 = wide, *c12 = wide + q, *c21 = wide + (long)p * n, *c22 = c21 + q;
    const auto add = [&](View u, double su, View v, View s, double ss, View t, double* one, double f, double* two, double g) {
        double* const into[] = {one, two};
        const double signs[] = {f, g};
        product(u, su, v, s, ss, t, into, signs, two ? 2 : 1, n, p, q, r);
    };
    add(a11, 1, a22, b11, 1, b22, c11, 1, c22, 1);
    add(a21, 1, a22, b11, 0, b11, c21, 1, c22, -1);
    add(a11, 0, a11, b12, -1, b22, c12, 1, c22, 1);
    add(a22, 0, a22, b21, -1, b11, c11, 1, c21, 1);
    add(a11, 1, a12, b22, 0, b22, c11, -1, c12, 1);
    add(a21, -1, a11, b11, 1, b12, c22, 1, nullptr, 0);
    add(a12, -1, a22, b21, 1, b22, c11, 1, nullptr, 0);
    double all = 0;
    for (long i = 0; i < (long)m * n; i++) all += c[i] = wide[i];
    if (!(all - all == 0)) plain(a, b, c, m, n, k);  // infinities spread to blocks that they do not belong to
}
