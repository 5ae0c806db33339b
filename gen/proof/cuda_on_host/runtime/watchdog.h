// Ends a thread that loops without any access or wait, which no callback ever sees.
#pragma once

namespace cuda_on_host {

// Watches the current operating-system thread while it lives.
class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void* timer_;
  bool armed_ = false;
};

}  // namespace cuda_on_host
