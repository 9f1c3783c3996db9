/*! evo
[[launch]]
kernel = "memcpy"
args = ["y", "b", "4 * n"]
*/
/* redteam
operator = "axpb"
tries = "names a function of the C library as its kernel"
expect = "caught"
says = "out of bounds"
*/
#include <cstring>
