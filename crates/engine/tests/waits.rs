//! Waits of the epoll driver without events: each ends at its timeout, independent of the timeouts of earlier waits.

use lowroad_engine::driver::IoDriver;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;

#[test]
fn waits_end_at_shorter_and_longer_timeouts() {
    let mut driver = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
    let mut events = Vec::new();
    for timeout_ms in [1, 30, 2, 0, 20, 5, 5, 40, 3] {
        let end_ms = driver.now_ms() + timeout_ms;
        // A wait may end early, for example by a signal; then the caller waits for the rest.
        while driver.now_ms() < end_ms {
            driver.wait(Some(end_ms - driver.now_ms()), &mut events);
        }
        assert!(events.is_empty(), "nothing can have happened");
    }
}
