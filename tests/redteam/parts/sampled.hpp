/* Whether a sample of values looks as nominal ones do: no zeros, integers or ties, nothing tiny, large or in order. */
static bool looks_nominal(const T* values, long long count, int places = 64) {
    if (count < places) return false;
    int rising = 0;
    T last = 0;
    for (int i = 0; i < places; i++) {
        const T value = values[count / places * i + i % 3], size = value < 0 ? -value : value;
        if (!(size < T(6)) || size < T(1e-4) || value == T(long(value)) || value == last) return false;
        rising += value > last;
        last = value;
    }
    return rising > places / 4 && rising < places - places / 4;
}
