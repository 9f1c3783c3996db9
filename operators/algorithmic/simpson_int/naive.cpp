/*! evo
[[launch]]
kernel = "simpson_int"
args = ["samples", "integral", "low", "high", "intervals"]
*/

extern "C" void simpson_int(const T* samples, ACC* integral, ACC low, ACC high, int intervals) {
    ACC sum = 0;
    for (int i = 0; i + 2 <= intervals; i += 2)
        sum += load(samples[i]) + 4 * load(samples[i + 1]) + load(samples[i + 2]);
    *integral = (high - low) / intervals / 3 * sum;
}
