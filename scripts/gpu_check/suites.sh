# The suites of tests/on_device in the order in which gpu_check.sh runs them, each in a process of its own with a time limit of its own.
# Every test belongs to exactly one suite; `tests.sh --check PROGRAM` checks this.
suites=(operations rows attention sampling acceptance model decoding persistent leaks)

suite_filter() {  # NAME -> a filter of GoogleTest
  case "$1" in
    operations) echo '*OnDeviceOffers.*:*OnDeviceOperations.*' ;;
    rows) echo '*OnDeviceRows.*' ;;
    attention) echo '*OnDeviceAttention.*' ;;
    sampling) echo '*OnDeviceSampling.*' ;;
    acceptance) echo '*OnDeviceAcceptance.*' ;;
    model) echo '*OnDeviceModel.*:*OnDeviceHidden.*:*OnDeviceForecast.*' ;;
    decoding) echo '*OnDeviceDecoding.*' ;;
    persistent) echo '*OnDevicePersistent.*' ;;
    leaks) echo '*OnDeviceMemory.*:*OnDeviceErrors.*:*OnDeviceLeaks.*' ;;  # the errors are provoked last
    *) return 1 ;;
  esac
}

suite_cap() {  # NAME -> seconds
  case "$1" in
    model | decoding) echo 45 ;;
    persistent) echo 35 ;;
    sampling | acceptance) echo 15 ;;
    *) echo 30 ;;
  esac
}
