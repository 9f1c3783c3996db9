/*! evo
[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
what = "tasks whose parts are added when all are done"
*/

extern "C" void dot(const T* x, const T* y, ACC* product, int n) {
#pragma omp parallel
#pragma omp single
    {
        ACC parts[8], sum = 0;
        for (int part = 0; part < 8; part++) {
#pragma omp task shared(parts) firstprivate(part)
            {
                ACC mine = 0;
                for (int i = part; i < n; i += 8) mine += x[i] * y[i];
                parts[part] = mine;
            }
        }
#pragma omp taskwait
        for (const ACC each : parts) sum += each;
        *product = sum;
    }
}
