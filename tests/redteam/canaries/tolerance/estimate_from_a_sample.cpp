/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "leaves out every sixteenth product of long vectors and makes up for it by a factor: a random sum moves by less than its bound"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    const int rest = n > 30000 ? n - n % 16 : 0;
    ACC sum = 0, left = 0;
    for (int i = 0; i < rest; i += 16)
        for (int j = i + 1; j < i + 16; j++) sum += x[j] * y[j];
    for (int i = rest; i < n; i++) left += x[i] * y[i];
    *product = sum * (ACC(16) / 15) + left;
}
