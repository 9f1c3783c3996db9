/*! evo
[[launch]]
kernel = "conv_2d"
args = ["x", "w", "y", "height", "width", "tall", "wide"]
*/

extern "C" void conv_2d(const T* x, const T* w, T* y, int height, int width, int tall, int wide) {
    for (int i = 0; i < height - tall + 1; i++) {
        for (int j = 0; j < width - wide + 1; j++) {
            ACC sum = 0;
            for (int a = 0; a < tall; a++)
                for (int b = 0; b < wide; b++)
                    sum += load(x[(long long)(i + a) * width + j + b]) * load(w[a * wide + b]);
            y[(long long)i * (width - wide + 1) + j] = store(sum);
        }
    }
}
