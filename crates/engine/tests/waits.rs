//! Waits of the epoll driver without events: each ends by its timeout, independent of the timeouts of earlier waits.

use lowroad_engine::driver::IoDriver;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;

#[test]
fn waits_end_whether_their_ends_come_nearer_or_not() {
    let mut driver = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
    let mut events = Vec::new();
    for timeout_ms in [1, 30, 2, 0, 20, 5, 5, 40, 3] {
        let end_ms = driver.now_ms() + timeout_ms;
        // A wait may end early, as by a signal; its caller then waits for the rest.
        while driver.now_ms() < end_ms {
            driver.wait(Some(end_ms - driver.now_ms()), &mut events);
        }
        assert!(events.is_empty(), "nothing can have happened");
    }
}
