/*! evo
[[launch]]
kernel = "monte_carlo_int"
args = ["samples", "integral", "low", "high", "n"]
*/

extern "C" void monte_carlo_int(const T* samples, ACC* integral, ACC low, ACC high, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) {
        sum += load(samples[i]);
    }
    *integral = (high - low) / n * sum;
}
