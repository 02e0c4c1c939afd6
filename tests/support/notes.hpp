#pragma once

namespace ingot::test {

/// Notes how far thread `rank` of the running test has come; printed if the test hangs. `what` is a
/// string literal. Any thread.
void note(int rank, const char* what);

/// Writes every rank's last note. Safe in a signal handler.
void write_notes(int descriptor);

}  // namespace ingot::test
