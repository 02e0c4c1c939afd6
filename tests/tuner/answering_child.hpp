#pragma once

namespace ingot::test {

/// Body of the child of child_process_test.cpp. Returns the exit status.
int answering_child();

}  // namespace ingot::test
