// The builtins library beside the stand-in: it only has to be there and open.
extern "C" int fake_nvrtc_builtins() {
  return 13;
}
